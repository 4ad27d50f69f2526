"""Computes the free resources of flavors and machines over time, and finds when and where a gang fits."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from job_tracker.scheduling.lengths import planned_end
from job_tracker.scheduling.model import INSTANCES, Flavor, Node, Part, Resources, Running
from job_tracker.scheduling.packing import UNLIMITED, Demand, Room, pack
from job_tracker.scheduling.profile import Profile, Return, Vector, in_order
from job_tracker.scheduling.running import Gangs, RunningGangs
from job_tracker.scheduling.shapes import held_parts, vector


@dataclass(frozen=True, slots=True)
class Slot:
    """The time at which a gang fits, and the machines for it if they are known."""

    at: float
    nodes: tuple[str, ...] = ()


NEVER = Slot(math.inf)
Use: TypeAlias = tuple[tuple[Part, ...], float, float]
"""The use of a flavor by a gang: the parts that use it, the start, and the length in seconds."""
_MOST_ROOMS = 64


class FlavorCapacity:
    """The free resources of one flavor over time."""

    def __init__(
        self, flavor: Flavor, now: float, running: Gangs | None = None, *, for_ever: bool = False
    ) -> None:
        """Start with the running gangs, or with none. With `for_ever`, they never end."""
        self.flavor = flavor
        self._now, self._for_ever = now, for_ever
        names = dict.fromkeys(flavor.capacity)
        for node in flavor.nodes:
            names.update(dict.fromkeys(node.capacity))
        self.names = tuple(names)
        self._has_nodes = bool(flavor.nodes) or flavor.is_followed
        self._open = {node.name: node for node in flavor.nodes if node.is_open}
        self._running = RunningGangs() if running is None else running
        self._on_nodes = self._running.on_machines(flavor.name)
        self._all = self._whole()
        self._profiles: dict[str, Profile] = {}
        """The free resources of each machine over time. They are computed when they are first needed."""
        self._rooms: dict[tuple[float, float], dict[str, Room]] = {}
        """The resources that stay free on each machine between two times, by these times."""

    def _whole(self) -> Profile:
        """Return the free resources of all open machines together.

        If the machines are unknown, return the free resources of the flavor.
        """
        name, running = self.flavor.name, self._running
        away = self._on_nodes.keys() - self._open.keys() if self._has_nodes else ()
        elsewhere = [each for node in away for each in self._on_nodes[node].items()]
        negative = [(job_id, _negative(amounts)) for job_id, amounts in elsewhere]
        free = self._left(self.flavor, [running.held_on(name), *(amounts for _, amounts in negative)])
        if self._for_ever:
            return Profile(self._now, free)
        returned = running.returned(name, self._now)
        if negative:
            returned = in_order([*returned, *self._returns(negative)])
        return Profile(self._now, free, returned)

    def _node(self, name: str) -> Profile:
        """Return the free resources of an open machine over time."""
        known = self._profiles.get(name)
        if known is None:
            held = self._on_nodes.get(name, {})
            free = self._left(self._open[name], held.values())
            returned = () if self._for_ever else in_order(self._returns(held.items()))
            known = self._profiles[name] = Profile(self._now, free, returned)
        return known

    def _returns(self, held: Iterable[tuple[int, Resources]]) -> Iterator[Return]:
        """Yield the amounts that gangs release, each at the planned end of its gang."""
        return ((planned_end(self._running[job_id], self._now), amounts) for job_id, amounts in held)

    def has_free(self, now: float) -> bool:
        """Return whether another instance may fit now."""
        if INSTANCES not in self.names:
            return not self.flavor.is_followed
        return self._all.lowest(now, now)[self.names.index(INSTANCES)] > 0

    def find(self, parts: tuple[Part, ...], length: float, after: float) -> Slot:
        """Return the slot at the first time, not before `after`, from which the parts fit for `length`
        seconds.

        Return NEVER if there is no such time.
        """
        if not self._offers(parts):
            return NEVER
        need = self._need(parts)
        at = self._all.earliest(need, length, after)
        if not self._has_nodes or at == math.inf:
            return Slot(at)
        for start in chain((at,), self._times_after(at)):
            if start > at and self._all.earliest(need, length, start) != start:
                continue
            nodes = self._pack(parts, start, start + length)
            if nodes is not None:
                return Slot(start, nodes)
        return NEVER

    def _times_after(self, at: float) -> Iterator[float]:
        """Yield the later times at which resources of open machines become free, in order."""
        yield from sorted({time for name in self._open for time in self._node(name).times() if time > at})

    def fits_at(
        self, parts: tuple[Part, ...], length: float, at: float, nodes: tuple[str, ...] = ()
    ) -> Slot | None:
        """If the parts fit from the time `at` on for `length` seconds, return the slot at this time.

        Otherwise, return None. The machines `nodes` are preferred.
        """
        if not self._offers(parts) or not self._all.fits_at(self._need(parts), length, at):
            return None
        if not self._has_nodes:
            return Slot(at)
        if not (nodes and self._fits_on(nodes, parts, length, at)):
            nodes = self._pack(parts, at, at + length) or ()
        return Slot(at, nodes) if nodes else None

    def _fits_on(self, nodes: tuple[str, ...], parts: tuple[Part, ...], length: float, at: float) -> bool:
        needs: dict[str, list[int]] = {}
        rank = 0
        for part in parts:
            each = vector(part.each, self.names)
            for name in nodes[rank : rank + part.count]:
                needs[name] = [sum(both) for both in zip(needs.get(name, [0] * len(each)), each, strict=True)]
            rank += part.count
        return rank == len(nodes) and all(
            name in self._open and self._node(name).fits_at(tuple(need), length, at)
            for name, need in needs.items()
        )

    def leaves(self, parts: tuple[Part, ...], length: float, promised: Iterable[Use]) -> bool:
        """Return whether enough is left for the `promised` uses if a gang with these parts starts now and
        runs for `length` seconds.

        Only the free resources of all machines together are compared.
        """
        rest = self._all.copy()
        for others, at, other_length in promised:
            start = max(at, self._now)
            rest.take(self._need(others), start, start + other_length)
        return rest.fits_at(self._need(parts), length, self._now)

    def is_fragmented(self, parts: tuple[Part, ...], now: float) -> bool:
        """Return whether the parts fit into the total of the free resources, but not onto the machines."""
        if not self._has_nodes or not self._offers(parts):
            return False
        if not self._all.fits_at(self._need(parts), 0.0, now):
            return False
        return self._pack(parts, now, now) is None

    def take(self, parts: tuple[Part, ...], slot: Slot, length: float) -> None:
        """Subtract the needs of the parts from the free resources, from the start of the slot for `length`
        seconds.
        """
        end = slot.at + length
        self._all.take(self._need(parts), slot.at, end)
        rank = 0
        for part in parts if slot.nodes else ():
            each = vector(part.each, self.names)
            for name, count in Counter(slot.nodes[rank : rank + part.count]).items():
                self._node(name).take(tuple(amount * count for amount in each), slot.at, end)
            rank += part.count
        for (first, last), rooms in self._rooms.items():
            for name in set(slot.nodes):
                rooms[name] = Room(self._open[name], self._node(name).lowest(first, last))

    def count(self, run: Running, now: float, sign: int = 1, until: float = math.inf) -> None:
        """Subtract the resources of a running gang from the free resources, from `now` to `until`.

        With sign -1, add the resources. Machines on which no jobs may start have no free resources, so
        nothing changes for these machines.
        """
        self._rooms.clear()
        parts, nodes = held_parts(run.gang, run.allocation), run.allocation.nodes
        if not (self._has_nodes and nodes):
            self._all.take(tuple(sign * amount for amount in self._need(parts)), now, until)
            return
        rank = 0
        for part in parts:
            each = tuple(sign * amount for amount in vector(part.each, self.names))
            for name in nodes[rank : rank + part.count]:
                if name in self._open:
                    self._node(name).take(each, now, until)
                    self._all.take(each, now, until)
            rank += part.count

    def hold(self, parts: tuple[Part, ...], now: float) -> None:
        """Subtract the needs of the parts from the free resources, from now on for ever.

        If less is free now than the parts need, the rest is subtracted from resources that become free later.
        No machines are chosen: only the free resources of all machines together change.
        """
        self._all.take(self._need(parts), now, math.inf)

    def _left(self, of: Flavor | Node, held: Iterable[Resources]) -> dict[str, int]:
        rest = 0 if self.flavor.is_followed else UNLIMITED
        free = {name: of.capacity.get(name, rest) for name in self.names}
        for needs in held:
            for name in self.names:
                free[name] -= needs.get(name, 0)
        return free

    def _offers(self, parts: tuple[Part, ...]) -> bool:
        """Return whether the labels and the resources of the flavor, as far as they are known, allow the
        parts.
        """
        labels = self.flavor.labels
        if labels and any(
            labels.get(key, value) != value for part in parts for key, value in part.where.selector
        ):
            return False
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
        if start <= self._now:
            return pack(demands, self._rooms_between(start, end))
        # The rooms at later times are not cached, since these times all differ. At such a time, most machines
        # usually have no room, so a quick check comes first.
        needs = {demand.each for demand in demands}
        nodes = (
            name
            for name in self._open
            if any(self._node(name).fits_at(need, end - start, start) for need in needs)
        )
        return pack(demands, [Room(self._open[name], self._node(name).lowest(start, end)) for name in nodes])

    def _rooms_between(self, start: float, end: float) -> Iterable[Room]:
        """Return a room for each machine, with the resources that stay free on it between the two times."""
        rooms = self._rooms.get((start, end))
        if rooms is None:
            if len(self._rooms) >= _MOST_ROOMS:
                self._rooms.clear()
            rooms = self._rooms[start, end] = {
                name: Room(node, self._node(name).lowest(start, end)) for name, node in self._open.items()
            }
        return rooms.values()


def _negative(amounts: Resources) -> Resources:
    return {name: -amount for name, amount in amounts.items()}
