"""The waiting gangs in memory. The order of each queue is updated with each change."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from job_tracker.scheduling.model import Gang, Part
from job_tracker.scheduling.shapes import PartsKey, parts_key


class WaitingGangs:
    """The gangs by queue and by id. Equal parts are stored once, so a gang takes a few hundred bytes."""

    def __init__(self, gangs: Iterable[Gang] = ()) -> None:
        """Start with these gangs."""
        self._gangs: dict[int, Gang] = {}
        self._order: dict[str, list[tuple[int, int]]] = {}
        self._parts: dict[PartsKey, tuple[Part, ...]] = {}
        self._users: dict[PartsKey, int] = {}
        for gang in gangs:
            self.add(gang)

    def add(self, gang: Gang) -> None:
        """Add a gang, or replace the gang with the same id."""
        self.remove(gang.job_id)
        key = parts_key(gang.parts)
        parts = self._parts.setdefault(key, gang.parts)
        self._users[key] = self._users.get(key, 0) + 1
        if parts is not gang.parts:
            gang = Gang(
                job_id=gang.job_id,
                queue=gang.queue,
                priority=gang.priority,
                parts=parts,
                least=gang.least,
                flavors=gang.flavors,
                expected=gang.expected,
            )
        self._gangs[gang.job_id] = gang
        insort(self._order.setdefault(gang.queue, []), _place(gang))

    def replace(self, gang: Gang) -> None:
        """Replace the gang with the same id."""
        self.add(gang)

    def remove(self, job_id: int) -> None:
        """Remove the gang of a job, if it waits."""
        gang = self._gangs.pop(job_id, None)
        if gang is None:
            return
        order = self._order[gang.queue]
        del order[bisect_left(order, _place(gang))]
        if not order:
            del self._order[gang.queue]
        key = parts_key(gang.parts)
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key], self._parts[key]

    def queues(self) -> Iterable[str]:
        """Return the names of the queues with waiting gangs."""
        return self._order.keys()

    def in_order(self, queue: str) -> Iterator[Gang]:
        """Return the gangs of a queue: the highest priority first, then the order of submissions."""
        return (self._gangs[job_id] for _, job_id in self._order.get(queue, ()))

    def count(self, queue: str) -> int:
        """Return the number of gangs that wait in a queue."""
        return len(self._order.get(queue, ()))

    def get(self, job_id: int) -> Gang | None:
        """Return the gang of a job; None if it does not wait."""
        return self._gangs.get(job_id)

    def __len__(self) -> int:
        """Return the number of waiting gangs."""
        return len(self._gangs)


def _place(gang: Gang) -> tuple[int, int]:
    return (-gang.priority, gang.job_id)
