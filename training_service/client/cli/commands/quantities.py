"""Parses quantities in options, such as 80G bytes or 312T operations a second."""

import math
import re

_UNITS = {"": 1.0}
_UNITS |= {unit: 1000.0**power for power, unit in enumerate("KMGTP", 1)}
_UNITS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTP", 1)}
_QUANTITY = re.compile(r"(\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?)([KMGTP]i?)?B?")


def quantity(text: str, option: str, kind: str = "size") -> float:
    """Parse a number above 0 with or without a unit, such as 16Gi, 80G or 3e14. Raises ValueError.

    The error names the `option` and the `kind` of quantity.
    """
    match = _QUANTITY.fullmatch(text)
    number = float(match[1]) * _UNITS[match[2] or ""] if match else 0.0
    if not 0 < number < math.inf:
        raise ValueError(f"{option} {text!r} is not a {kind}; write for example 16Gi, 80G or 512Mi")
    return number
