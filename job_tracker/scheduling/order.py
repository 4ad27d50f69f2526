"""The order in which a pass looks at the waiting gangs."""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from job_tracker.scheduling.model import Gang, Promise, Resources, Snapshot
from job_tracker.scheduling.quotas import QuotaTree, quota_rules
from job_tracker.scheduling.shapes import fewest_trainers, total, with_trainers
from job_tracker.scheduling.shares import Shares

_Key: TypeAlias = tuple[bool, float, int]
"""Whether the gang needs more than what is guaranteed, the share, and the id of the gang."""


@dataclass(slots=True)
class _Turn:
    """A queue whose gangs wait, or a parent of such queues, and the gang whose turn it is in it."""

    name: str
    gangs: Iterator[Gang] | None = None
    """The further gangs of a queue. None: it is a parent."""
    gang: Gang | None = None
    key: _Key = (True, math.inf, 0)
    heap: "list[tuple[_Key, _Turn]]" = field(default_factory=list)
    """What is below a parent."""


class Order:
    """What is guaranteed goes first; then the queue, or the parent of queues, with the least share.

    In a queue, gangs with a promise go first, in the order of their promises. The highest priority goes
    first, also before promises to lower ones.
    """

    def __init__(self, snapshot: Snapshot, shares: Shares, tree: QuotaTree | None = None) -> None:
        """Start before the first gang. `tree` has what queues use; without it, nothing is guaranteed."""
        self._snapshot = snapshot
        self._shares = shares
        self._tree = tree
        self._rules = quota_rules(snapshot.queues, snapshot.flavors)
        self._flavors = tuple(self._rules.guarantees) if tree is not None else ()
        self._needs: dict[tuple[int, int], Resources] = {}
        self._closed: set[str] = set()

    def close(self, queue: str) -> None:
        """Leave out the rest of the queue of the last gang."""
        self._closed.add(queue)

    def __iter__(self) -> Iterator[Gang]:
        """Return the gangs. What is counted for the queue of a gang before the next one decides, too."""
        root = self._turns()
        while root.heap:
            path = [root]
            while path[-1].gangs is None:
                path.append(path[-1].heap[0][1])
            turn = path.pop()
            if turn.gang is None or turn.gangs is None:
                raise AssertionError(turn)
            yield turn.gang
            turn.gang = None if turn.name in self._closed else next(turn.gangs, None)
            for above in reversed(path):
                if turn.gang is None:
                    heapq.heappop(above.heap)
                else:
                    heapq.heapreplace(above.heap, self._entry(turn, turn.gang))
                above.gang = above.heap[0][1].gang if above.heap else None
                turn = above

    def _turns(self) -> _Turn:
        """Return the root of the tree of turns."""
        waiting = self._snapshot.waiting
        promised = self._promised()
        parents = {"": _Turn("")}
        for name in waiting.queues():
            gangs = iter(waiting.in_order(name))
            if name in promised:
                gangs = self._promised_first(name, promised[name])
            turn = _Turn(name, gangs, next(gangs, None))
            if turn.gang is None:
                continue
            above = self._rules.path(name)[1:]
            if above[0] not in parents:
                parents.update({each: _Turn(each) for each in above if each not in parents})
            parents[above[0]].heap.append(self._entry(turn, turn.gang))
        for turn in sorted(parents.values(), key=lambda each: len(self._rules.path(each.name)), reverse=True):
            heapq.heapify(turn.heap)
            if turn.name and turn.heap:
                turn.gang = turn.heap[0][1].gang
                if turn.gang is not None:
                    parents[self._rules.parent(turn.name)].heap.append(self._entry(turn, turn.gang))
        return parents[""]

    def _entry(self, turn: _Turn, gang: Gang) -> tuple[_Key, _Turn]:
        needs_more = not turn.heap or turn.heap[0][0][0]
        if needs_more and self._flavors:
            needs_more = not self._is_guaranteed(turn.name, gang)
        return (needs_more, self._shares.of(turn.name), gang.job_id), turn

    def _is_guaranteed(self, node: str, gang: Gang) -> bool:
        """Return whether what is guaranteed to the node on some flavor is enough for the gang, too."""
        key = (id(gang.parts), gang.least)
        needs = self._needs.get(key)
        if needs is None:
            needs = self._needs[key] = total(with_trainers(gang.parts, fewest_trainers(gang)))
        tree = self._tree
        if tree is not None:
            for flavor in gang.flavors or self._flavors:
                if tree.is_guaranteed(node, flavor, needs):
                    return True
        return False

    def _promised(self) -> dict[str, list[tuple[float, int, Gang]]]:
        """Return the gangs to which a start is promised, by queue."""
        found: dict[str, list[tuple[float, int, Gang]]] = {}
        for job_id, promise in self._snapshot.promises.items():
            gang = self._snapshot.waiting.get(job_id) if promise.at < math.inf else None
            if gang is not None:
                found.setdefault(gang.queue, []).append((promise.at, job_id, gang))
        return found

    def _promised_first(self, queue: str, promised: list[tuple[float, int, Gang]]) -> Iterator[Gang]:
        seen: set[int] = set()
        looked_above = math.inf
        for _, job_id, gang in sorted(promised, key=lambda entry: entry[:2]):
            if job_id in seen:
                continue
            if gang.priority < looked_above:
                looked_above = gang.priority
                for ahead in self._higher(queue, gang.priority):
                    if ahead.job_id not in seen:
                        seen.add(ahead.job_id)
                        yield ahead
            seen.add(job_id)
            yield gang
        yield from (gang for gang in self._snapshot.waiting.in_order(queue) if gang.job_id not in seen)

    def _higher(self, queue: str, priority: int) -> Iterator[Gang]:
        """Return the gangs of a higher priority that have no promise yet."""
        for gang in self._snapshot.waiting.in_order(queue):
            if gang.priority <= priority:
                return
            promise: Promise | None = self._snapshot.promises.get(gang.job_id)
            if promise is None:
                yield gang
            elif promise.at == math.inf:
                return  # It was looked at when the lower ones of its queue got their promises.
