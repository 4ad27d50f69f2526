"""The waiting gangs, kept in order."""

from bisect import bisect_left, insort
from collections.abc import Iterable

from job_tracker.scheduling.model import Gang


class WaitingGangs:
    """The waiting gangs by queue, in the order in which they are to start."""

    def __init__(self) -> None:
        self._gangs: dict[int, Gang] = {}
        self._order: dict[str, list[tuple[int, int]]] = {}

    def queues(self) -> Iterable[str]:
        """Return the names of the queues with waiting gangs."""
        return self._order

    def in_order(self, queue: str) -> Iterable[Gang]:
        """Return the gangs of a queue: the highest priority first, then the order of submissions."""
        return (self._gangs[job_id] for _, job_id in self._order.get(queue, ()))

    def get(self, job_id: int) -> Gang | None:
        """Return one gang."""
        return self._gangs.get(job_id)

    def __len__(self) -> int:
        """Return how many gangs wait."""
        return len(self._gangs)

    def add(self, gang: Gang) -> None:
        """Add a gang, or replace it."""
        self.remove(gang.job_id)
        self._gangs[gang.job_id] = gang
        insort(self._order.setdefault(gang.queue, []), _place(gang))

    def remove(self, job_id: int) -> None:
        """Remove a gang, if it waits."""
        gang = self._gangs.pop(job_id, None)
        if gang is None:
            return
        order = self._order[gang.queue]
        del order[bisect_left(order, _place(gang))]
        if not order:
            del self._order[gang.queue]


def _place(gang: Gang) -> tuple[int, int]:
    return -gang.priority, gang.job_id
