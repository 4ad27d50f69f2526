"""What is free by flavor and machine, now and later, and where a gang fits."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from job_tracker.scheduling.model import INSTANCES, Flavor, Node, Part, Running
from job_tracker.scheduling.packing import UNLIMITED, Demand, Room, pack
from job_tracker.scheduling.profile import Profile, Vector
from job_tracker.scheduling.shapes import held_parts, vector


@dataclass(frozen=True, slots=True)
class Slot:
    """When a gang fits, and on which machines if they are known."""

    at: float
    nodes: tuple[str, ...] = ()


NEVER = Slot(math.inf)


class FlavorCapacity:
    """The free resources of one flavor over time."""

    def __init__(self, flavor: Flavor, now: float, running: Iterable[tuple[Running, float]]) -> None:
        """Start with the running gangs of the flavor, and when each is expected to end."""
        self.flavor = flavor
        names = dict.fromkeys(flavor.capacity)
        for node in flavor.nodes:
            names.update(dict.fromkeys(node.capacity))
        self.names = tuple(names)
        self._has_nodes = bool(flavor.nodes) or flavor.is_followed
        by_node: dict[str, list[tuple[float, Vector]]] = {node.name: [] for node in flavor.nodes}
        self._open = {node.name: node for node in flavor.nodes if node.is_open}
        held: list[tuple[float, Vector]] = []
        needs: dict[int, tuple[tuple[Part, ...], Vector]] = {}
        for run, end in running:
            held_now = held_parts(run.gang, run.allocation)
            if self._has_nodes and run.allocation.nodes:
                held += ((end, each) for each in self._on_nodes(run, held_now, end, by_node))
                continue
            known = needs.get(id(held_now))
            if known is None:
                known = needs[id(held_now)] = (held_now, self._need(held_now))
            held.append((end, known[1]))
        self._all = Profile(now, self._capacity(flavor), held)
        self._nodes = {
            name: Profile(now, self._capacity(node), by_node[name]) for name, node in self._open.items()
        }

    def _on_nodes(
        self,
        run: Running,
        parts: tuple[Part, ...],
        end: float,
        by_node: dict[str, list[tuple[float, Vector]]],
    ) -> Iterator[Vector]:
        """Count what a gang holds on each machine; yield that of machines on which others may start."""
        rank = 0
        for part in parts:
            each = vector(part.each, self.names)
            for name in run.allocation.nodes[rank : rank + part.count]:
                if name in by_node:
                    by_node[name].append((end, each))
                if name in self._open:
                    yield each
            rank += part.count

    def has_free(self, now: float) -> bool:
        """Return whether another instance may fit now."""
        if INSTANCES not in self.names:
            return not self.flavor.is_followed
        return self._all.lowest(now, now)[self.names.index(INSTANCES)] > 0

    def find(self, parts: tuple[Part, ...], length: float, after: float) -> Slot:
        """Return the first time from which the parts fit for a length of time."""
        if not self._offers(parts):
            return NEVER
        need = self._need(parts)
        at = self._all.earliest(need, length, after)
        if not self._has_nodes or at == math.inf:
            return Slot(at)
        times = sorted({t for node in self._nodes.values() for t in node.times if t > at})
        for start in (at, *times):
            if start > at and self._all.earliest(need, length, start) != start:
                continue
            nodes = self._pack(parts, start, start + length)
            if nodes is not None:
                return Slot(start, nodes)
        return NEVER

    def fits_at(self, parts: tuple[Part, ...], length: float, at: float) -> Slot | None:
        """Return where the parts fit from exactly this time, if they do."""
        if not self._offers(parts) or not self._all.fits_at(self._need(parts), length, at):
            return None
        if not self._has_nodes:
            return Slot(at)
        nodes = self._pack(parts, at, at + length)
        return None if nodes is None else Slot(at, nodes)

    def is_fragmented(self, parts: tuple[Part, ...], now: float) -> bool:
        """Return whether enough is free in all, but not on single machines."""
        if not self._has_nodes or not self._offers(parts):
            return False
        if not self._all.fits_at(self._need(parts), 0.0, now):
            return False
        return self._pack(parts, now, now) is None

    def take(self, parts: tuple[Part, ...], slot: Slot, length: float) -> None:
        """Take what parts need in a slot."""
        end = slot.at + length
        self._all.take(self._need(parts), slot.at, end)
        rank = 0
        for part in parts if slot.nodes else ():
            each = vector(part.each, self.names)
            for name in slot.nodes[rank : rank + part.count]:
                self._nodes[name].take(each, slot.at, end)
            rank += part.count

    def hold(self, parts: tuple[Part, ...], now: float) -> None:
        """Take what parts need from now on, also if it is not free yet: then the next that gets free."""
        self._all.take(self._need(parts), now, math.inf)

    def _capacity(self, of: Flavor | Node) -> Vector:
        rest = 0 if self.flavor.is_followed else UNLIMITED
        return tuple(of.capacity.get(name, rest) for name in self.names)

    def _offers(self, parts: tuple[Part, ...]) -> bool:
        """Return whether it has every resource that the parts need, as far as that is known."""
        if not self.flavor.is_followed:
            return True
        return all(not amount or name in self.names for part in parts for name, amount in part.each.items())

    def _need(self, parts: tuple[Part, ...]) -> Vector:
        if len(parts) == 1:
            count = parts[0].count
            return tuple(amount * count for amount in vector(parts[0].each, self.names))
        rows = [vector(part.each, self.names) for part in parts]
        counts = [part.count for part in parts]
        return tuple(
            sum(row[i] * count for row, count in zip(rows, counts, strict=True))
            for i in range(len(self.names))
        )

    def _pack(self, parts: tuple[Part, ...], start: float, end: float) -> tuple[str, ...] | None:
        demands = [Demand(part.count, vector(part.each, self.names), part.where) for part in parts]
        rooms = (Room(self._open[name], node.lowest(start, end)) for name, node in self._nodes.items())
        return pack(demands, rooms)
