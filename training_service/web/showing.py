"""Shows times, durations, sizes and numbers with their units.

Templates escape each `str`. A function that returns Markup escapes its text itself.
"""

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from markupsafe import Markup, escape

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_THOUSAND: Final = 1000
_MOST_WHOLE: Final = 1e15
_TEN_THOUSAND: Final = 1e4
_SHORT: Final = 1e-3
_CODE: Final = re.compile(r"`([^`\n]+)`")


def time(moment: datetime | None) -> Markup:
    """Return a time as an HTML element, which the browser shows in its own time zone."""
    if moment is None:
        return Markup("–")
    at = moment.astimezone(UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(
        at.isoformat(timespec="milliseconds").replace("+00:00", "Z"), at.strftime("%Y-%m-%d %H:%M:%S")
    )


def duration(length: timedelta | float | None) -> str:
    """Return a duration in at most two units, such as 3 h 20 min."""
    if length is None:
        return "–"
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if not math.isfinite(seconds):
        return "–"
    if 0 < seconds < _SHORT:
        return "< 1 ms"
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    first = next((place for place, (number, _) in enumerate(parts) if number), len(parts) - 1)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number) or "0 s"


def size(number: int | None) -> str:
    """Return a number of bytes with its unit; "–" for None and 0."""
    if not number:
        return "–"
    value, unit = float(number), 0
    while value >= _THOUSAND and unit < len(_UNITS) - 1:
        value /= _THOUSAND
        unit += 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"


def number(value: float | None) -> str:
    """Return a number as text.

    An `int` has all its digits. A `float` has four significant digits. But a whole `float` below 1e15 has all
    its digits, and a `float` from 10,000 to 1e15 is rounded to a whole number. NaN is
    "NaN", infinity is "∞", and None is "–".
    """
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value.is_integer() and abs(value) < _MOST_WHOLE:
        return number(int(value))
    if _TEN_THOUSAND <= abs(value) < _MOST_WHOLE:
        return number(round(value))
    return f"{value:.4g}"


def metric(name: str, value: float | None) -> str:
    """Return the value of a metric with the unit that the metric's name ends with, such as `_seconds` or
    `_bytes`.
    """
    if value is None or not math.isfinite(value):
        return number(value)
    if name.endswith("_seconds") and value >= 0:
        return duration(value) if value >= _SHORT else f"{value * 1e6:.3g} µs"
    if name.endswith("_bytes") and value >= 0:
        return size(round(value)) if value else "0 B"
    if name.endswith("_per_second"):
        return f"{number(value)}/s"
    return number(value)


def prose(text: str) -> Markup:
    """Return the text as HTML. Parts in backticks become `<code>` elements."""
    return Markup(_CODE.sub(lambda found: f"<code>{found[1]}</code>", str(escape(text))))  # noqa: S704


def share(part: float, whole: float) -> str:
    """Return `part` as a share of `whole`, in percent."""
    return f"{100 * part / whole:.0f} %" if whole else "–"
