"""Quantities of the cluster as whole numbers: what nodes offer, and what pods request. Pure functions."""

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Final

from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.catalog.syntax import CPU

_NUMBER: Final = re.compile(r"([+-]?[0-9.]{1,32})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?")
_DECIMAL: Final = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_THOUSANDTHS: Final = 1000

Amounts = dict[str, int]
"""Amounts by resource: thousandths of a core for `cpu`, otherwise bytes or whole units."""


def offered(quantities: Mapping[str, str]) -> Amounts:
    """Return the resources that a node offers, rounded down to whole numbers."""
    return {name: _whole(name, quantity, ROUND_FLOOR) for name, quantity in quantities.items()}


def requested(pod: Manifest) -> Amounts:
    """Return the resources that a pod requests, as the scheduler of Kubernetes counts them.

    The containers of a pod run together with its sidecars, which are init containers that are restarted.
    Before that, each other init container runs with the sidecars that are listed before it. The largest
    amount at any of these times counts. If the pod itself has a request, this request counts instead. The
    pod's overhead is added.
    """
    spec = pod["spec"]
    running: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        needs = _of_container(container)
        if container.get("restartPolicy") == "Always":
            _add(running, needs)
            needs = {}
        _raise(most, _sum((running, needs)))
    for container in spec.get("containers") or ():
        _add(running, _of_container(container))
    _raise(most, running)
    of_pod = (spec.get("resources") or {}).get("requests") or {}
    most |= {name: _whole(name, quantity, ROUND_CEILING) for name, quantity in of_pod.items()}
    overhead = spec.get("overhead") or {}
    _add(most, {name: _whole(name, quantity, ROUND_CEILING) for name, quantity in overhead.items()})
    return most


def _of_container(container: Mapping[str, Any]) -> Amounts:
    requests = (container.get("resources") or {}).get("requests") or {}
    return {name: _whole(name, quantity, ROUND_CEILING) for name, quantity in requests.items()}


def _whole(name: str, quantity: str, rounding: str) -> int:
    number = _number(str(quantity)) * (_THOUSANDTHS if name == CPU else 1)
    return int(number.to_integral_value(rounding))


def _number(quantity: str) -> Decimal:
    match = _NUMBER.fullmatch(quantity)
    if match is None:
        raise ValueError(f"{quantity!r} is not a quantity of Kubernetes")
    digits, suffix, exponent = match.groups()
    if suffix and suffix.endswith("i"):
        return Decimal(digits) * Decimal(1024) ** ("KMGTPE".index(suffix[0]) + 1)
    return Decimal(digits).scaleb(int(exponent) if exponent else _DECIMAL[suffix or ""])


def _add(to: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        to[name] = to.get(name, 0) + amount


def _raise(to: Amounts, least: Mapping[str, int]) -> None:
    for name, amount in least.items():
        to[name] = max(to.get(name, 0), amount)


def _sum(all_of: Iterable[Mapping[str, int]]) -> Amounts:
    total: Amounts = {}
    for each in all_of:
        _add(total, each)
    return total
