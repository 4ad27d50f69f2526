"""First in, first out, under the capacity of the first flavor in instances.

The first waiting job is never overtaken: a large job that does not fit yet holds back the smaller ones behind
it, and starts as soon as enough jobs have ended. Jobs that fit together are admitted at once.
"""

from heapq import merge

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.scheduling.model import (
    INSTANCES,
    Admit,
    Allocation,
    Gang,
    Plan,
    Promise,
    Reason,
    Refuse,
    Reserve,
    Snapshot,
)


def plan(snapshot: Snapshot, now: float) -> Plan:
    """Return the decisions, the same for all queues together."""
    flavor = snapshot.flavors[0]
    capacity = flavor.capacity[INSTANCES]
    free = capacity - sum(_size(each.gang, each.allocation) for each in snapshot.running.values())
    admitted: list[Admit] = []
    refused: list[Refuse] = []
    for gang in merge(*map(snapshot.waiting.in_order, snapshot.waiting.queues()), key=_place):
        size = _size(gang)
        if size > capacity:
            refused.append(Refuse(gang.job_id, too_large(size, capacity)))
        elif not snapshot.is_open or size > free:
            reason = Reason.CAPACITY if snapshot.is_open else Reason.ROOM
            promise = snapshot.promises.get(gang.job_id) or Promise(now, flavor.name)
            head = Reserve(gang.job_id, promise, (reason,))
            return Plan(tuple(admitted), tuple(refused), (head,))
        else:
            admitted.append(Admit(gang.job_id, Allocation(flavor=flavor.name)))
            free -= size
    return Plan(tuple(admitted), tuple(refused))


def too_large(size: int, capacity: int) -> Diagnosis:
    """Return why a job of this size can never start."""
    return Diagnosis(
        category=Category.EXCEEDS_CAPACITY,
        summary=f"The job needs {size} instances, but the service's capacity is {capacity}.",
        resolution="Submit it with fewer instances, or raise scheduling.capacity.",
    )


def _place(gang: Gang) -> tuple[int, int]:
    return -gang.priority, gang.job_id


def _size(gang: Gang, allocation: Allocation | None = None) -> int:
    trainers = allocation.trainers if allocation else 0
    first, *others = gang.parts
    return (trainers or first.count) + sum(part.count for part in others)
