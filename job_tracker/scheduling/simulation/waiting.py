"""The waiting gangs of a simulation."""

from bisect import bisect_left, insort
from collections.abc import Iterable

from job_tracker.scheduling.model import Gang


class WaitingGangs:
    """Waiting gangs by queue, in their order."""

    def __init__(self) -> None:
        self._gangs: dict[int, Gang] = {}
        self._order: dict[str, list[tuple[int, int]]] = {}

    def add(self, gang: Gang) -> None:
        """Add a gang."""
        self._gangs[gang.job_id] = gang
        insort(self._order.setdefault(gang.queue, []), (-gang.priority, gang.job_id))

    def remove(self, job_id: int) -> Gang:
        """Remove a gang and return it. Raises KeyError if it does not wait."""
        gang = self._gangs.pop(job_id)
        order = self._order[gang.queue]
        del order[bisect_left(order, (-gang.priority, gang.job_id))]
        if not order:
            del self._order[gang.queue]
        return gang

    def queues(self) -> Iterable[str]:
        """Return the names of the queues with waiting gangs."""
        return tuple(self._order)

    def in_order(self, queue: str) -> Iterable[Gang]:
        """Yield the gangs of a queue: the highest priority first, then the order of submissions."""
        for _, job_id in self._order.get(queue, ()):
            yield self._gangs[job_id]

    def get(self, job_id: int) -> Gang | None:
        """Return one gang."""
        return self._gangs.get(job_id)

    def __len__(self) -> int:
        return len(self._gangs)
