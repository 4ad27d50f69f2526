"""Placements of instances as values of a search, such as `any` or `near:zone+apart:machine+strict`."""

from collections.abc import Mapping
from typing import Any

PLACEMENT = "placement"
"""The key of placements in a space. No built-in algorithm has a parameter with this name."""
ANY = "any"
_PLACES = ("machine", "rack", "zone")
_FORM = (
    "write any, near:PLACE or apart:PLACE, or both joined by +, where PLACE is machine, rack or zone; "
    "+strict makes the placement a requirement"
)


def parsed_placement(text: str) -> Mapping[str, Any]:
    """Return the placement as the JSON form of the message Placement; empty for `any`.

    Raises ValueError if the text is not a placement.
    """
    found: dict[str, Any] = {}
    for part in text.split("+") if text != ANY else ():
        name, _, place = part.partition(":")
        is_place = name in ("near", "apart") and place in _PLACES
        if name in found or not (is_place or part == "strict"):
            raise ValueError(f"the placement {text!r} is not allowed: {_FORM}")
        found[name] = place if is_place else True
    if found.keys() == {"strict"}:
        raise ValueError(f"the placement {text!r} is not allowed: {_FORM}")
    return found
