"""The order in which a pass considers the waiting gangs."""

import heapq
import math
from collections.abc import Iterator
from typing import TypeAlias

from job_tracker.scheduling.model import Gang, Promise, Resources, Snapshot
from job_tracker.scheduling.quotas import QuotaTree, quota_rules
from job_tracker.scheduling.shapes import fewest_trainers, total, with_trainers
from job_tracker.scheduling.shares import Shares

_Entry: TypeAlias = tuple[bool, float, int, bool, str]
"""An entry of a heap, for a queue or a parent of queues. Its values are: whether the next gang needs more
than the guaranteed quota, the share, the gang's id, whether the entry is for a parent, and the name. Plain
values leave little work to the garbage collector.
"""


class Order:
    """Yields the waiting gangs in the order of their turns.

    Among nodes of the tree with the same parent, those whose next gang fits in their guaranteed quota go
    before the others. In each of these two groups, the node that has used least for its weight (see Shares)
    goes first.

    In a queue, gangs with a promised start go first, in the order of these starts. However, a gang that has
    no reservation yet goes before all gangs of lower priorities, even before those with a promised start.
    This does not apply to a gang that waits behind a gang to which no start can be promised.
    """

    def __init__(self, snapshot: Snapshot, shares: Shares, tree: QuotaTree | None = None) -> None:
        """`shares` and `tree` have the present use of the queues. Without a tree, no quota is guaranteed."""
        self._snapshot = snapshot
        self._shares = shares
        self._tree = tree
        self._rules = quota_rules(snapshot.queues, snapshot.flavors)
        self._flavors = tuple(self._rules.guarantees) if tree is not None else ()
        self._needs: dict[tuple[int, int], Resources] = {}
        self._closed: set[str] = set()
        self._heaps: dict[str, list[_Entry]] = {"": []}
        """By parent, the heap of the queues and parents directly below it. The root is ""."""
        self._begun: dict[str, tuple[Gang | None, Iterator[Gang]]] = {}
        """By queue, the next gang and the gangs after it. An entry is made when it is first needed."""
        self._promised = self._promised_by_queue()

    def close(self, queue: str) -> None:
        """Skip the remaining gangs of this queue. It must be the queue of the gang that was yielded last."""
        self._closed.add(queue)

    def __iter__(self) -> Iterator[Gang]:
        """Yield the gangs in the order of the pass.

        Usage that the caller counts between two gangs changes the order of the remaining gangs.
        """
        self._fill()
        top = self._heaps[""]
        while top:
            path, entry = [""], top[0]
            while entry[3]:
                path.append(entry[4])
                entry = self._heaps[entry[4]][0]
            queue = entry[4]
            gang, rest = self._begin(queue)
            if gang is None:
                raise AssertionError(queue)
            yield gang
            gang = None if queue in self._closed else next(rest, None)
            self._begun[queue] = gang, rest
            changed = None if gang is None else self._entry(queue, gang)
            for above in reversed(path):
                heap = self._heaps[above]
                if changed is None:
                    heapq.heappop(heap)
                else:
                    heapq.heapreplace(heap, changed)
                changed = self._entry_of_parent(above) if above and heap else None

    def _fill(self) -> None:
        for queue in self._snapshot.waiting.queues():
            gang = self._first_of(queue)
            if gang is None:
                continue
            above = self._rules.path(queue)[1:]
            if above[0] not in self._heaps:
                self._heaps.update({each: [] for each in above if each not in self._heaps})
            self._heaps[above[0]].append(self._entry(queue, gang))
        for name in sorted(self._heaps, key=lambda name: len(self._rules.path(name)), reverse=True):
            heapq.heapify(self._heaps[name])
            if name and self._heaps[name]:
                self._heaps[self._rules.parent(name)].append(self._entry_of_parent(name))

    def _first_of(self, queue: str) -> Gang | None:
        if queue in self._promised:
            return self._begin(queue)[0]
        return next(iter(self._snapshot.waiting.in_order(queue)), None)

    def _begin(self, queue: str) -> tuple[Gang | None, Iterator[Gang]]:
        known = self._begun.get(queue)
        if known is None:
            promised = self._promised.get(queue)
            waiting = self._snapshot.waiting
            rest = self._promised_first(queue, promised) if promised else iter(waiting.in_order(queue))
            known = self._begun[queue] = next(rest, None), rest
        return known

    def _entry(self, queue: str, gang: Gang) -> _Entry:
        needs_more = not (self._flavors and self._is_guaranteed(queue, gang))
        return needs_more, self._shares.of(queue), gang.job_id, False, queue

    def _entry_of_parent(self, name: str) -> _Entry:
        needs_more, _, job_id, _, _ = self._heaps[name][0]
        gang = self._snapshot.waiting.get(job_id) if needs_more and self._flavors else None
        if gang is not None:
            needs_more = not self._is_guaranteed(name, gang)
        return needs_more, self._shares.of(name), job_id, True, name

    def _is_guaranteed(self, node: str, gang: Gang) -> bool:
        """Return whether the gang still fits into the node's guaranteed quota on at least one flavor."""
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

    def _promised_by_queue(self) -> dict[str, list[tuple[float, int, Gang]]]:
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
        """Yield the gangs of the queue that have a higher priority and no reservation yet.

        Stop at the first gang to which no start can be promised.
        """
        for gang in self._snapshot.waiting.in_order(queue):
            if gang.priority <= priority:
                return
            promise: Promise | None = self._snapshot.promises.get(gang.job_id)
            if promise is None:
                yield gang
            elif promise.at == math.inf:
                return  # This gang was considered when the gangs of lower priorities got their promises.
