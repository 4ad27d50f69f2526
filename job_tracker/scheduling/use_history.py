"""A week of history for web pages and commands: the use and the waiting jobs of queues and projects.

A note has the history of one queue or project for one day. It is a list of items [slot, held, quota,
waiting]: one item for each slot of five minutes in which capacity was held or jobs waited. `held` and `quota`
are thousandths of the capacity; a `quota` of -1 means that there is none. The leader writes the notes, and
every replica reads them.
"""

import asyncio
import json
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Final

from job_tracker.scheduling.board import Board
from job_tracker.scheduling.model import Flavor, Queue
from job_tracker.scheduling.quotas import quota_rules
from job_tracker.scheduling.running import running_gangs
from job_tracker.scheduling.shapes import held_parts, total
from job_tracker.store.scheduling import SchedulingStore

OF_QUEUES: Final = "history"
OF_PROJECTS: Final = "project-history"
"""The kinds of these notes. The key of a note has the day, and the name of the queue or project."""
SLOT_SECONDS: Final = 300
DAYS: Final = 7
MOST_NAMES: Final = 64
"""The largest number of queues, and of projects, that have notes for a day.

The first ones that hold capacity or have waiting jobs on the day get notes.
"""
MOST_POINTS: Final = 336
"""The largest number of points of a chart. A week then has a point for each half hour."""
_REMEMBERED: Final = 256
_DAY_SECONDS: Final = 86_400
_NO_QUOTA: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The largest use and the largest number of waiting jobs of a queue or project, in one or more slots."""

    at: float
    """The time at which the first slot begins, in Unix seconds."""
    held: float
    """The largest used part of any resource's capacity, from 0 to 1."""
    quota: float | None
    """The guaranteed part of the capacity. None: there is no quota."""
    waiting: int
    seconds: float = float(SLOT_SECONDS)
    """The length of all its slots together, in seconds."""


@dataclass(frozen=True, slots=True)
class Use:
    """The use of queues or projects now, by name."""

    held: Mapping[str, float]
    waiting: Mapping[str, int]
    guaranteed: Mapping[str, float]


class UseHistory:
    """The use of queues, or of projects, on the present day, as the leader records it."""

    def __init__(self, kind: str) -> None:
        """`kind` is OF_QUEUES or OF_PROJECTS."""
        self.kind = kind
        self._day = 0
        self._names: dict[str, dict[int, tuple[int, int, int]]] = {}
        self._kept: set[str] = set()
        """The keys of all notes."""

    def restore(self, notes: Mapping[str, str], now: float) -> None:
        """Continue with the notes of earlier leaders."""
        day = int(now // _DAY_SECONDS)
        if day != self._day:
            self._day, self._names = day, {}
        self._kept = set(notes)
        for key, text in notes.items():
            noted, name = _day_and_name(key)
            if noted == day:
                self._names[name] = {
                    slot: (held, quota, waiting) for slot, held, quota, waiting in _read(text)
                }

    def observe(self, use: Use, now: float) -> None:
        """Record the present use, and the number of waiting jobs."""
        day, slot = int(now // _DAY_SECONDS), int(now % _DAY_SECONDS // SLOT_SECONDS)
        if day != self._day:
            self._day, self._names = day, {}
        held, waiting, guaranteed = use.held, use.waiting, use.guaranteed
        for name in sorted({*held, *waiting}):
            if name not in self._names and len(self._names) >= MOST_NAMES:
                continue
            slots = self._names.setdefault(name, {})
            before = slots.get(slot, (0, _NO_QUOTA, 0))
            slots[slot] = (
                max(before[0], round(1000 * held.get(name, 0.0))),
                round(1000 * guaranteed[name]) if name in guaranteed else _NO_QUOTA,
                max(before[2], waiting.get(name, 0)),
            )

    def texts(self) -> Mapping[str, str]:
        """Return the notes of the present day, by key."""
        return {
            _key(self._day, name): json.dumps([[slot, *values] for slot, values in slots.items()])
            for name, slots in self._names.items()
        }

    def outdated(self) -> Collection[str]:
        """Return the keys of the notes that are at least DAYS days old."""
        self._kept |= self.texts().keys()
        return {key for key in self._kept if _day_and_name(key)[0] <= self._day - DAYS}

    def forget(self, keys: Iterable[str]) -> None:
        """Forget notes that were removed."""
        self._kept.difference_update(keys)


class UseReader:
    """Reads the history. The most recently read past days are cached, since they no longer change."""

    def __init__(self, store: SchedulingStore) -> None:
        """Read the notes of this store."""
        self._store = store
        self._past: OrderedDict[tuple[str, str, int], Sequence[Point]] = OrderedDict()

    async def read(
        self, kind: str, names: Collection[str], now: float, seconds: float
    ) -> Mapping[str, Sequence[Point]]:
        """Return the known points of these queues or projects for the last `seconds`, by name, the oldest
        first.

        There are at most about MOST_POINTS points for each name. A point may cover several slots.
        """
        last = int(now // _DAY_SECONDS)
        days = range(max(last - DAYS, int((now - seconds) // _DAY_SECONDS)), last + 1)
        step = max(1, round(seconds / SLOT_SECONDS / MOST_POINTS))
        found = await asyncio.gather(
            *(self._day(kind, name, day, step, is_past=day < last) for name in names for day in days)
        )
        parts = iter(found)
        return {
            name: [
                point
                for points in islice(parts, len(days))
                for point in points
                if now - seconds - point.seconds <= point.at <= now
            ]
            for name in names
        }

    async def _day(self, kind: str, name: str, day: int, step: int, *, is_past: bool) -> Sequence[Point]:
        place = (kind, _key(day, name), step)
        if place in self._past:
            self._past.move_to_end(place)
            return self._past[place]
        points = tuple(_points(day, await self._store.scheduling_note(*place[:2]) or "[]", step))
        if is_past:
            self._past[place] = points
            while len(self._past) > _REMEMBERED:
                self._past.popitem(last=False)
        return points


def _points(day: int, text: str, step: int) -> Iterator[Point]:
    for slot, group in groupby(sorted(_read(text)), lambda each: each[0] // step * step):
        each = list(group)
        quota = each[-1][2]
        yield Point(
            at=float(day * _DAY_SECONDS + slot * SLOT_SECONDS),
            held=max(held for _, held, _, _ in each) / 1000,
            quota=None if quota == _NO_QUOTA else quota / 1000,
            waiting=max(waiting for _, _, _, waiting in each),
            seconds=float(step * SLOT_SECONDS),
        )


def _key(day: int, name: str) -> str:
    return f"{day} {name}"


def _day_and_name(key: str) -> tuple[int, str]:
    day, _, name = key.partition(" ")
    return int(day) if day.isdecimal() else 0, name


def _read(text: str) -> list[tuple[int, int, int, int]]:
    """Return the items of a note, without items of another form, which other versions may have written."""
    try:
        slots = json.loads(text)
    except ValueError:
        return []
    return [(*each,) for each in slots if len(each) == 4] if isinstance(slots, list) else []


def _capacities(flavors: Sequence[Flavor]) -> Mapping[str, int]:
    """Return the capacity of each resource, of all flavors together."""
    found: dict[str, int] = {}
    for flavor in flavors:
        for name, amount in flavor.capacity.items():
            found[name] = found.get(name, 0) + amount
    return found


def _share(amounts: Mapping[str, int], capacities: Mapping[str, int]) -> float:
    return max(
        (amount / capacities[name] for name, amount in amounts.items() if capacities.get(name)), default=0.0
    )


def use_of_queues(board: Board) -> Use:
    """Return the use of each queue, including the queues below it."""
    snapshot = board.snapshot(is_open=True)
    path = quota_rules(snapshot.queues, snapshot.flavors).path
    amounts: dict[str, dict[str, int]] = {}
    for queue, by_flavor in running_gangs(snapshot.running).held().items():
        for node in path(queue):
            for held in by_flavor.values():
                _add(amounts.setdefault(node, {}), held.amounts)
    waiting: dict[str, int] = {}
    for queue in board.waiting.queues():
        number = board.waiting.count(queue)
        for node in path(queue):
            waiting[node] = waiting.get(node, 0) + number
    waiting = {node: number for node, number in waiting.items() if node and number}
    guaranteed = {queue.name: _nominal([queue]) for queue in snapshot.queues.values()}
    amounts.pop("", None)
    return _use(amounts, waiting, guaranteed, snapshot.flavors)


def use_of_projects(board: Board) -> Use:
    """Return the use of each project.

    A project is guaranteed the quotas of the queues that only this project may use.
    """
    snapshot = board.snapshot(is_open=True)
    amounts: dict[str, dict[str, int]] = {}
    waiting = Counter(board.projects.values())
    for run in board.running.values():
        if (project := board.projects.get(run.gang.job_id)) is not None:
            _add(amounts.setdefault(project, {}), total(held_parts(run.gang, run.allocation)))
            waiting[project] -= 1
    own: dict[str, list[Queue]] = {}
    for queue in snapshot.queues.values():
        above = snapshot.queues.get(queue.parent)
        if queue.project and (above is None or above.project != queue.project or not above.limits):
            own.setdefault(queue.project, []).append(queue)
    guaranteed = {project: _nominal(queues) for project, queues in own.items()}
    return _use(amounts, +waiting, guaranteed, snapshot.flavors)


def _use(
    amounts: Mapping[str, Mapping[str, int]],
    waiting: Mapping[str, int],
    guaranteed: Mapping[str, Mapping[str, int]],
    flavors: Sequence[Flavor],
) -> Use:
    capacities = _capacities(flavors)
    return Use(
        {name: _share(held, capacities) for name, held in amounts.items()},
        waiting,
        {name: min(1.0, _share(nominal, capacities)) for name, nominal in guaranteed.items() if nominal},
    )


def _nominal(queues: Iterable[Queue]) -> Mapping[str, int]:
    amounts: dict[str, int] = {}
    for queue in queues:
        for limits in queue.limits.values():
            _add(amounts, {name: limit.nominal for name, limit in limits.items()})
    return amounts


def _add(amounts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + amount
