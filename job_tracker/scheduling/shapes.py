"""Functions for the parts of gangs: a key for equal parts, numbers of trainers, and total needs."""

from dataclasses import replace
from typing import TypeAlias

from job_tracker.scheduling.model import INSTANCES, Allocation, Gang, Part, Resources, Where

PartsKey: TypeAlias = tuple[tuple[int, tuple[tuple[str, int], ...], Where], ...]


def parts_key(parts: tuple[Part, ...]) -> PartsKey:
    """Return a hashable value that is equal for equal parts."""
    return tuple((part.count, tuple(sorted(part.each.items())), part.where) for part in parts)


def with_trainers(parts: tuple[Part, ...], trainers: int) -> tuple[Part, ...]:
    """Return the parts with this number of trainers. With 0, the parts stay unchanged."""
    if not parts or trainers in (0, parts[0].count):
        return parts
    return (replace(parts[0], count=trainers), *parts[1:])


def held_parts(gang: Gang, allocation: Allocation) -> tuple[Part, ...]:
    """Return the parts that a gang with an allocation holds."""
    return with_trainers(gang.parts, allocation.trainers)


def fewest_trainers(gang: Gang) -> int:
    """Return the smallest number of trainers with which a gang starts."""
    asked = gang.parts[0].count if gang.parts else 0
    return min(gang.least, asked) if gang.least > 0 else asked


def total(parts: tuple[Part, ...]) -> dict[str, int]:
    """Return the total needs of parts. Each instance counts 1 for the resource `instances`."""
    needs = {INSTANCES: 0}
    for part in parts:
        if INSTANCES not in part.each:
            needs[INSTANCES] += part.count
        for name, amount in part.each.items():
            needs[name] = needs.get(name, 0) + amount * part.count
    return needs


def vector(each: Resources, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the amounts that an instance takes of the resources `names`, in their order."""
    return tuple(each.get(name, 1 if name == INSTANCES else 0) for name in names)
