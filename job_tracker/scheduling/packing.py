"""Puts the instances of a gang on few machines that are as near to each other as possible."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop
from typing import TypeAlias

from job_tracker.domain.group import Place
from job_tracker.scheduling.model import ANYWHERE, Node, Where
from job_tracker.scheduling.profile import Vector

UNLIMITED = 1 << 80


@dataclass(frozen=True, slots=True)
class Demand:
    """Equal instances that need machines."""

    count: int
    each: Vector
    where: Where = ANYWHERE


@dataclass(frozen=True, slots=True)
class Room:
    """A machine, and its free resources."""

    node: Node
    free: Vector


_Fits: TypeAlias = dict[str, int]
"""The number of instances that fit on each machine, by its name. Machines without room for an instance are
left out."""


def pack(demands: Sequence[Demand], rooms: Iterable[Room]) -> tuple[str, ...] | None:
    """Return the machine of each instance, demand by demand; None if they do not fit.

    The placement of the first demand applies to all demands. Without a placement, the instances are put on
    one machine if possible, otherwise in one rack, otherwise in one zone, otherwise anywhere. The smallest
    place with enough room is used, so that large places stay free.
    """
    found = {room.node.name: room for room in rooms if room.node.is_open}
    fits = [_fits(demand, found) for demand in demands]
    if not _may_hold(demands, fits):
        return None
    places = demands[0].where if demands else ANYWHERE
    for near, apart in _choices(places):
        for group in _groups(demands, fits, found, near):
            packed = _Packer({name: found[name] for name in group}, apart).pack(demands, fits)
            if packed is not None:
                return packed
    return None


def times(free: Vector, each: Vector) -> int:
    """Return how many instances fit into the `free` resources if an instance needs the amounts `each`."""
    return min([a // b for a, b in zip(free, each, strict=True) if b], default=UNLIMITED)


def _fits(demand: Demand, rooms: Mapping[str, Room]) -> _Fits:
    selector, known = demand.where.selector, dict[Vector, int]()
    fits: _Fits = {}
    for name, room in rooms.items():
        count = known.get(room.free)
        if count is None:  # many machines are alike, so the count is cached
            count = known[room.free] = times(room.free, demand.each)
        if count > 0 and (not selector or _matches(room.node, selector)):
            fits[name] = count
    return fits


def _may_hold(demands: Sequence[Demand], fits: Sequence[_Fits]) -> bool:
    """Return whether the machines have room for each demand alone.

    `fits` has, for each demand, the numbers of instances that fit on machines.
    """
    return all(sum(each.values()) >= demand.count for demand, each in zip(demands, fits, strict=True))


def _choices(where: Where) -> Iterator[tuple[Place | None, Place | None]]:
    """Yield the pairs of `near` and `apart` to try, the best first."""
    if where.strict:
        yield where.near, where.apart
        return
    nears: tuple[Place | None, ...] = (*Place, None)
    if where.near is not None:
        nears = (where.near, *where.near.larger, None)
    if where.apart is not None:
        yield from ((near, where.apart) for near in nears if near is None or near in where.apart.larger)
    yield from ((near, None) for near in nears)


def _groups(
    demands: Sequence[Demand], fits: Sequence[_Fits], rooms: Mapping[str, Room], near: Place | None
) -> Iterator[Sequence[str]]:
    """Yield, for each place that may have enough room, the names of its machines.

    `near` is the kind of the places; None: all machines are one place. The place with the least room comes
    first.
    """
    if near is None:
        yield list(rooms)
        return
    if near is Place.MACHINE:
        among = (name for name, count in fits[0].items() if count >= demands[0].count) if fits else rooms
        ordered = [(rooms[name].free, name) for name in among]
        heapify(ordered)  # usually only the first one is needed
        while ordered:
            yield (heappop(ordered)[1],)
        return
    by_place: dict[str, list[str]] = {}
    for name, room in rooms.items():
        if (place := room.node.places.get(near)) is not None:
            by_place.setdefault(place, []).append(name)
    groups = []
    for place, group in by_place.items():
        of_group = [{name: each[name] for name in group if name in each} for each in fits]
        if _may_hold(demands, of_group):
            groups.append(([sum(each.values()) for each in of_group], place))
    yield from (by_place[place] for _, place in sorted(groups))


class _Packer:
    """Packs demands on some machines, the largest instances first."""

    def __init__(self, rooms: Mapping[str, Room], apart: Place | None) -> None:
        self._rooms = rooms
        self._free: dict[str, Vector] = {}
        """The remaining free resources of the machines that were used."""
        self._apart = apart
        self._taken: set[str] = set()
        """The places that already have an instance, if instances are to be apart."""

    def pack(self, demands: Sequence[Demand], fits: Sequence[_Fits]) -> tuple[str, ...] | None:
        placed: list[list[str]] = [[] for _ in demands]
        order = sorted(range(len(demands)), key=lambda i: (demands[i].each, -i), reverse=True)
        for index in order:
            of_group = {name: fits[index][name] for name in self._rooms if name in fits[index]}
            if not self._place(demands[index], of_group, placed[index]):
                return None
        return tuple(name for names in placed for name in names)

    def _place(self, demand: Demand, fits: _Fits, placed: list[str]) -> bool:
        for name in self._free.keys() & fits.keys():
            fits[name] = times(self._free[name], demand.each)
        left = demand.count
        while left:
            if self._apart is not None:
                fits = {name: 1 for name, count in fits.items() if count > 0 and self._is_untaken(name)}
            enough = [(count, name) for name, count in fits.items() if count >= left]
            # Take the smallest machine with enough room. If there is none, take the one with the most room.
            found = min(enough) if enough else max(((n, name) for name, n in fits.items()), default=(0, ""))
            count, name = min(found[0], left), found[1]
            if count <= 0:
                return False
            self._take(name, demand.each, count)
            placed += [name] * count
            left -= count
            del fits[name]
        return True

    def _take(self, name: str, each: Vector, count: int) -> None:
        free = self._free.get(name, self._rooms[name].free)
        self._free[name] = tuple(a - b * count for a, b in zip(free, each, strict=True))
        if self._apart is not None and (place := self._place_of(name)) is not None:
            self._taken.add(place)

    def _is_untaken(self, name: str) -> bool:
        place = self._place_of(name)
        return place is not None and place not in self._taken

    def _place_of(self, name: str) -> str | None:
        if self._apart is None:
            return None
        return self._rooms[name].node.places.get(self._apart, name if self._apart is Place.MACHINE else None)


def _matches(node: Node, selector: tuple[tuple[str, str], ...]) -> bool:
    return all(node.labels.get(key) == value for key, value in selector)
