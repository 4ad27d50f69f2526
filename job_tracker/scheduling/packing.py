"""Puts the instances of a gang on machines: as few and as near to each other as possible."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from job_tracker.domain.group import Place
from job_tracker.scheduling.model import ANYWHERE, Node, Where
from job_tracker.scheduling.profile import Vector

UNLIMITED = 1 << 80


@dataclass(frozen=True, slots=True)
class Demand:
    """Alike instances that need machines."""

    count: int
    each: Vector
    where: Where = ANYWHERE


@dataclass(frozen=True, slots=True)
class Room:
    """A machine, and what is free there."""

    node: Node
    free: Vector


_Names: TypeAlias = list[str]


def pack(demands: Sequence[Demand], rooms: Iterable[Room]) -> tuple[str, ...] | None:
    """Return the machine of each instance, demand by demand; None if they do not fit.

    Without a placement, the instances are put on one machine if possible, or else in one rack, or else in
    one zone. Each time, the smallest place that is enough is taken, so that large ones stay free.
    """
    found = [room for room in rooms if room.node.is_open]
    places = demands[0].where if demands else ANYWHERE
    for near, apart in _choices(places):
        for group in _groups(found, near):
            packed = _Packer(group, apart).pack(demands)
            if packed is not None:
                return packed
    return None


def times(free: Vector, each: Vector) -> int:
    """Return how many alike instances fit into what is free."""
    return min((a // b for a, b in zip(free, each, strict=True) if b), default=UNLIMITED)


def _choices(where: Where) -> Iterator[tuple[Place | None, Place | None]]:
    """Yield what to try for `near` and `apart`, the best first."""
    if where.strict:
        yield where.near, where.apart
        return
    nears: tuple[Place | None, ...] = (*Place, None)
    if where.near is not None:
        nears = (where.near, *where.near.larger, None)
    if where.apart is not None:
        yield from ((near, where.apart) for near in nears if near is None or near in where.apart.larger)
    yield from ((near, None) for near in nears)


def _groups(rooms: Sequence[Room], near: Place | None) -> Iterator[Sequence[Room]]:
    """Yield the machines of each place of a kind, the place with the least that is free first."""
    if near is None:
        yield rooms
        return
    if near is Place.MACHINE:
        yield from ([room] for room in sorted(rooms, key=lambda room: (room.free, room.node.name)))
        return
    by_place: dict[str, list[Room]] = {}
    for room in rooms:
        if (name := room.node.places.get(near)) is not None:
            by_place.setdefault(name, []).append(room)
    yield from (
        group
        for _, group in sorted(
            by_place.items(), key=lambda each: ([sum(column) for column in _columns(each[1])], each[0])
        )
    )


def _columns(rooms: Sequence[Room]) -> Iterator[tuple[int, ...]]:
    return zip(*(room.free for room in rooms), strict=True)


class _Packer:
    """Packs demands on some machines, the largest instances first."""

    def __init__(self, rooms: Sequence[Room], apart: Place | None) -> None:
        self._nodes: Mapping[str, Node] = {room.node.name: room.node for room in rooms}
        self._free = {room.node.name: room.free for room in rooms}
        self._apart = apart
        self._taken: set[str] = set()
        """The places that have an instance, if instances are to be apart."""

    def pack(self, demands: Sequence[Demand]) -> tuple[str, ...] | None:
        placed: list[_Names] = [[] for _ in demands]
        order = sorted(range(len(demands)), key=lambda i: (demands[i].each, -i), reverse=True)
        for index in order:
            if not self._place(demands[index], placed[index]):
                return None
        return tuple(name for names in placed for name in names)

    def _place(self, demand: Demand, placed: _Names) -> bool:
        fits = {
            name: count
            for name in self._free
            if _matches(self._nodes[name], demand.where)
            and (count := times(self._free[name], demand.each)) > 0
        }
        left = demand.count
        if sum(min(count, left) for count in fits.values()) < left:
            return False
        while left:
            if self._apart is not None:
                fits = {name: 1 for name in fits if self._is_untaken(name)}
            if not fits:
                return False
            enough = [(count, name) for name, count in fits.items() if count >= left]
            # The smallest machine that is enough, or else the largest one.
            count, name = min(enough) if enough else max(((n, each) for each, n in fits.items()))
            count = min(count, left)
            self._take(name, demand.each, count)
            placed += [name] * count
            left -= count
            del fits[name]
        return True

    def _take(self, name: str, each: Vector, count: int) -> None:
        self._free[name] = tuple(a - b * count for a, b in zip(self._free[name], each, strict=True))
        if self._apart is not None and (place := self._place_of(name)) is not None:
            self._taken.add(place)

    def _is_untaken(self, name: str) -> bool:
        place = self._place_of(name)
        return place is not None and place not in self._taken

    def _place_of(self, name: str) -> str | None:
        if self._apart is None:
            return None
        return self._nodes[name].places.get(self._apart, name if self._apart is Place.MACHINE else None)


def _matches(node: Node, where: Where) -> bool:
    return all(node.labels.get(key) == value for key, value in where.selector)
