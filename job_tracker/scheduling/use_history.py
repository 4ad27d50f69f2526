"""How much queues held, and how many jobs waited in them, over the last week: for people.

A day of a queue is one note: a list of [slot, held, quota, waiting] for each time of five minutes in which
it held something or jobs waited. Shares are in thousandths. The leader writes them, and every replica reads
them.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from job_tracker.scheduling.board import Board
from job_tracker.scheduling.model import Flavor, Queue, Snapshot
from job_tracker.scheduling.quotas import quota_rules
from job_tracker.scheduling.running import running_gangs
from job_tracker.store.scheduling import SchedulingStore

HISTORY: Final = "history"
"""The kind of these notes. Their keys are the day and the queue."""
SLOT_SECONDS: Final = 300
DAYS: Final = 7
MOST_QUEUES: Final = 64
"""Queues that a day remembers: the first that hold something or have waiting jobs."""
_DAY_SECONDS: Final = 86_400
_NO_QUOTA: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The most that a queue held within a slot, and the most jobs that waited."""

    at: float
    """When the slot begins, in Unix seconds."""
    held: float
    """The largest part of the capacity of any resource; 0 to 1."""
    quota: float | None
    """The part that is guaranteed to it; None: it has no quota."""
    waiting: int


class UseHistory:
    """The present day, as the leader records it."""

    def __init__(self) -> None:
        self._day = 0
        self._queues: dict[str, dict[int, tuple[int, int, int]]] = {}
        self._kept: set[str] = set()
        """The keys of all notes."""

    def restore(self, notes: Mapping[str, str], now: float) -> None:
        """Continue with the notes of earlier leaders."""
        self._day = int(now // _DAY_SECONDS)
        self._kept = set(notes)
        for key, text in notes.items():
            day, queue = _day_and_queue(key)
            if day == self._day:
                self._queues[queue] = {
                    slot: (held, quota, waiting) for slot, held, quota, waiting in _read(text)
                }

    def observe(self, board: Board, now: float) -> None:
        """Record what queues hold now, and how many jobs wait in them."""
        day, slot = int(now // _DAY_SECONDS), int(now % _DAY_SECONDS // SLOT_SECONDS)
        if day != self._day:
            self._day, self._queues = day, {}
        snapshot = board.snapshot(is_open=True)
        held, waiting = _held(snapshot), _waiting(board, snapshot)
        guaranteed = _guaranteed(snapshot.flavors, snapshot.queues)
        for queue in sorted({*held, *waiting}):
            if queue not in self._queues and len(self._queues) >= MOST_QUEUES:
                continue
            slots = self._queues.setdefault(queue, {})
            before = slots.get(slot, (0, _NO_QUOTA, 0))
            slots[slot] = (
                max(before[0], round(1000 * held.get(queue, 0.0))),
                round(1000 * guaranteed[queue]) if queue in guaranteed else _NO_QUOTA,
                max(before[2], waiting.get(queue, 0)),
            )

    def texts(self) -> Mapping[str, str]:
        """Return the notes of the present day, by key."""
        return {
            _key(self._day, queue): json.dumps([[slot, *values] for slot, values in slots.items()])
            for queue, slots in self._queues.items()
        }

    def outdated(self) -> Collection[str]:
        """Return the keys of notes that are too old."""
        self._kept |= self.texts().keys()
        return {key for key in self._kept if _day_and_queue(key)[0] <= self._day - DAYS}

    def forget(self, keys: Iterable[str]) -> None:
        """Forget notes that were removed."""
        self._kept.difference_update(keys)


async def history_of(
    store: SchedulingStore, queues: Collection[str], now: float, seconds: float
) -> Mapping[str, Sequence[Point]]:
    """Return the last `seconds` of these queues, as far as they are known, the oldest point first."""
    last = int(now // _DAY_SECONDS)
    first = max(last - DAYS, int((now - seconds) // _DAY_SECONDS))
    found: dict[str, Sequence[Point]] = {}
    for queue in queues:
        texts = [
            (day, await store.scheduling_note(HISTORY, _key(day, queue))) for day in range(first, last + 1)
        ]
        points = [point for day, text in texts if text for point in _points(day, text)]
        found[queue] = [point for point in points if now - seconds - SLOT_SECONDS <= point.at <= now]
    return found


def _points(day: int, text: str) -> Iterator[Point]:
    for slot, held, quota, waiting in sorted(_read(text)):
        yield Point(
            at=float(day * _DAY_SECONDS + slot * SLOT_SECONDS),
            held=held / 1000,
            quota=None if quota == _NO_QUOTA else quota / 1000,
            waiting=waiting,
        )


def _key(day: int, queue: str) -> str:
    return f"{day} {queue}"


def _day_and_queue(key: str) -> tuple[int, str]:
    day, _, queue = key.partition(" ")
    return int(day) if day.isdecimal() else 0, queue


def _read(text: str) -> list[tuple[int, int, int, int]]:
    """Return the slots of a note; none if another version has written it."""
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


def _held(snapshot: Snapshot) -> Mapping[str, float]:
    """Return the part of the capacity that each queue holds, with the queues below it."""
    from_gangs = running_gangs(snapshot.running).held()
    path = quota_rules(snapshot.queues, snapshot.flavors).path
    amounts: dict[str, dict[str, int]] = {}
    for queue, by_flavor in from_gangs.items():
        for node in path(queue):
            of_node = amounts.setdefault(node, {})
            for held in by_flavor.values():
                for name, amount in held.amounts.items():
                    of_node[name] = of_node.get(name, 0) + amount
    capacities = _capacities(snapshot.flavors)
    return {node: _share(of_node, capacities) for node, of_node in amounts.items() if node}


def _waiting(board: Board, snapshot: Snapshot) -> Mapping[str, int]:
    path = quota_rules(snapshot.queues, snapshot.flavors).path
    found: dict[str, int] = {}
    for queue in board.waiting.queues():
        number = board.waiting.count(queue)
        for node in path(queue):
            if node and number:
                found[node] = found.get(node, 0) + number
    return found


def _guaranteed(flavors: Sequence[Flavor], queues: Mapping[str, Queue]) -> Mapping[str, float]:
    capacities = _capacities(flavors)
    found: dict[str, float] = {}
    for queue in queues.values():
        amounts: dict[str, int] = {}
        for limits in queue.limits.values():
            for name, limit in limits.items():
                amounts[name] = amounts.get(name, 0) + limit.nominal
        if amounts:
            found[queue.name] = min(1.0, _share(amounts, capacities))
    return found
