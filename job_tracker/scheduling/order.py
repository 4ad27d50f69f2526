"""The order in which a pass looks at the waiting gangs."""

import heapq
import math
from collections.abc import Iterator

from job_tracker.scheduling.model import Gang, Snapshot
from job_tracker.scheduling.shares import Shares


class Order:
    """Gangs with a promise first, in the order of their promises; then the queue with the least share.

    In a queue, the highest priority goes first, also before promises to lower ones.
    """

    def __init__(self, snapshot: Snapshot, shares: Shares) -> None:
        """Start before the first gang."""
        self._snapshot = snapshot
        self._shares = shares
        self._seen: set[int] = set()
        self._closed: set[str] = set()

    def close(self, queue: str) -> None:
        """Leave out the rest of a queue."""
        self._closed.add(queue)

    def __iter__(self) -> Iterator[Gang]:
        """Return the gangs. What is charged to the shares between two of them counts for the next."""
        yield from self._promised()
        waiting = self._snapshot.waiting
        heap: list[tuple[float, int, str, Gang, Iterator[Gang]]] = []
        for queue in waiting.queues():
            self._push(heap, queue, iter(waiting.in_order(queue)))
        heapq.heapify(heap)
        while heap:
            share, _, queue, gang, rest = heapq.heappop(heap)
            if queue in self._closed:
                continue
            current = self._shares.of(queue)
            if current > share:
                heapq.heappush(heap, (current, gang.job_id, queue, gang, rest))
                continue
            yield gang
            self._push(heap, queue, rest, sift=True)

    def _push(
        self,
        heap: list[tuple[float, int, str, Gang, Iterator[Gang]]],
        queue: str,
        rest: Iterator[Gang],
        *,
        sift: bool = False,
    ) -> None:
        gang = next((gang for gang in rest if gang.job_id not in self._seen), None)
        if gang is not None:
            entry = (self._shares.of(queue), gang.job_id, queue, gang, rest)
            if sift:
                heapq.heappush(heap, entry)
            else:
                heap.append(entry)

    def _promised(self) -> Iterator[Gang]:
        waiting = self._snapshot.waiting
        found = [
            (promise.at, gang.job_id, gang)
            for job_id, promise in self._snapshot.promises.items()
            if promise.at < math.inf and (gang := waiting.get(job_id)) is not None
        ]
        for _, job_id, gang in sorted(found, key=lambda entry: entry[:2]):
            if job_id in self._seen:
                continue
            for ahead in waiting.in_order(gang.queue):
                if ahead.priority <= gang.priority:
                    break
                if ahead.job_id not in self._seen and gang.queue not in self._closed:
                    self._seen.add(ahead.job_id)
                    yield ahead
            if gang.queue not in self._closed:
                self._seen.add(job_id)
                yield gang
