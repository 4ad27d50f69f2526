"""The present queue: the waiting jobs that a caller may see, and the resources that each queue uses."""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

from job_tracker.catalog.entries import listed
from job_tracker.common.printable import quoted
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import UnknownReference
from job_tracker.scheduling.estimates import Estimate
from job_tracker.scheduling.gangs import quantity_of
from job_tracker.scheduling.leaving import leaving_for
from job_tracker.scheduling.mirror import Label, Seen
from job_tracker.scheduling.model import Gang, Reason
from job_tracker.scheduling.shapes import held_parts, total
from job_tracker.scheduling.shares import Shares
from job_tracker.scheduling.use_history import Point
from job_tracker.scheduling.work import size

MOST_QUEUES: Final = 1000
"""The largest number of queues in an answer."""

Place: TypeAlias = tuple[str, int, int]
"""The position of a job in the list: its queue, its negated priority, and its id."""
_Used: TypeAlias = dict[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A waiting job."""

    gang: Gang
    label: Label
    place: int
    """The job's place among all waiting jobs of its queue. The first is 1."""
    reason: Reason
    estimate: Estimate | None
    stopping: Sequence[int] = ()
    """The jobs that are being stopped for this job, and that the caller may see."""

    @property
    def key(self) -> Place:
        """The job's position in the list."""
        return (self.gang.queue, -self.gang.priority, self.gang.job_id)

    @property
    def instances(self) -> int:
        """The number of instances that the job asks for."""
        return size(self.gang)


@dataclass(frozen=True, slots=True)
class UsedResource:
    """The use of a resource by a queue and the queues below it, as quantities."""

    flavor: str
    resource: str
    used: str
    capacity: str
    """The capacity of the flavor."""
    nominal: str | None
    """The queue's quota; None: it has none."""
    share: float
    """The used part of the capacity, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """A queue, or a parent of queues. The numbers of jobs and the use include the queues below it."""

    name: str
    parent: str
    weight: float
    waiting: int
    running: int
    instances: int
    """The number of instances of the queue's running jobs."""
    used: Sequence[UsedResource]
    share: float
    """The queue's part of the recent use by all queues with the same parent, from 0 to 1."""
    max_running: int | None = None


@dataclass(frozen=True, slots=True)
class QueuePage:
    """A page of waiting jobs, sorted by queue and place, and the queues that the caller may see."""

    jobs: Sequence[WaitingJob]
    queues: Sequence[QueueStanding]
    after: Place | None
    """The value of `after` for the next page. None: this page is the last."""
    history: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    """The recent use by the first few of `queues`, if the caller asked for it; otherwise empty."""
    of_projects: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    """The recent use by projects, if the caller asked for it; otherwise empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFilter:
    """A filter of waiting jobs."""

    project: str = ""
    """The project of the jobs. Empty: all projects in which the caller has a role."""
    queue: str = ""
    """The queue of the jobs. Empty: all queues."""


def page_of(seen: Seen, caller: Caller, where: QueueFilter, limit: int, after: Place | None) -> QueuePage:
    """Return a page of the waiting jobs that the caller may see. Only the first page has the queues.

    Raises UnknownReference for a queue that the caller may not see.
    """
    queues = _queues(seen, caller, where) if after is None else []
    found = list(islice(_jobs(seen, caller, where, after), limit + 1))
    if where.queue and after is None and not found and where.queue not in {each.name for each in queues}:
        allowed = listed(_visible(seen, caller, where.project))
        raise UnknownReference("queue", f"{quoted(where.queue)} doesn't exist; allowed: {allowed}")
    jobs = found[:limit]
    return QueuePage(jobs, queues, jobs[-1].key if len(found) > limit else None)


def _jobs(seen: Seen, caller: Caller, where: QueueFilter, after: Place | None) -> Iterator[WaitingJob]:
    situation = seen.situation
    waiting = situation.snapshot.waiting
    gated = _gated(seen)
    for queue in sorted({*waiting.queues(), *gated}):
        if (where.queue and queue != where.queue) or (after is not None and queue < after[0]):
            continue
        of_queue = heapq.merge(gated.get(queue, ()), waiting.in_order(queue), key=_in_queue)
        for place, gang in enumerate(of_queue, 1):
            label = seen.labels.get(gang.job_id)
            if label is None or (where.project and label.project != where.project):
                continue
            if caller.role_in(label.project) is None:
                continue
            if after is not None and (queue, -gang.priority, gang.job_id) <= after:
                continue
            is_gated = gang.job_id in situation.snapshot.gated
            reason = Reason.DELEGATED if is_gated else situation.reasons(gang)[0]
            stopping = [
                job_id
                for job_id in (
                    leaving_for(situation.snapshot, gang.job_id) if reason is Reason.PREEMPTING else ()
                )
                if (other := seen.labels.get(job_id)) and caller.role_in(other.project) is not None
            ]
            yield WaitingJob(gang, label, place, reason, situation.estimate(gang.job_id), stopping)


def _gated(seen: Seen) -> Mapping[str, list[Gang]]:
    """Return the gangs that wait in the cluster's own queue, by their queue in this service.

    The gangs of each queue are in the order of that queue.
    """
    found: dict[str, list[Gang]] = {}
    snapshot = seen.situation.snapshot
    for job_id in snapshot.gated if seen.situation.plan.is_delegated else ():
        gang = snapshot.running[job_id].gang
        found.setdefault(gang.queue, []).append(gang)
    return {queue: sorted(gangs, key=_in_queue) for queue, gangs in found.items()}


def _in_queue(gang: Gang) -> tuple[int, int]:
    return (-gang.priority, gang.job_id)


def _queues(seen: Seen, caller: Caller, where: QueueFilter) -> list[QueueStanding]:
    snapshot = seen.situation.snapshot
    names = sorted(_visible(seen, caller, where.project))[:MOST_QUEUES]
    waiting, running, instances = Counter[str](), Counter[str](), Counter[str]()
    used: dict[str, _Used] = {}
    for queue in snapshot.waiting.queues():
        count = sum(1 for _ in snapshot.waiting.in_order(queue))
        waiting.update(dict.fromkeys(_path(seen, queue), count))
    gated = _gated(seen)
    for queue, gangs in gated.items():
        for name in _path(seen, queue):
            waiting[name] += len(gangs)
    there = {gang.job_id for gangs in gated.values() for gang in gangs}
    for run in snapshot.running.values():
        if run.gang.job_id in there:
            continue
        held = total(held_parts(run.gang, run.allocation))
        for name in _path(seen, run.gang.queue):
            running[name] += 1
            instances[name] += held["instances"]
            of_queue = used.setdefault(name, {})
            for resource, amount in held.items():
                kind = (run.allocation.flavor, resource)
                of_queue[kind] = of_queue.get(kind, 0) + amount
    recent = _recent_shares(seen)
    return [
        QueueStanding(
            name=name,
            parent=snapshot.queues[name].parent,
            weight=snapshot.queues[name].weight,
            waiting=waiting[name],
            running=running[name],
            instances=instances[name],
            used=list(_resources(seen, name, used.get(name, {}))),
            share=recent.get(name, 0.0),
            max_running=snapshot.queues[name].max_running,
        )
        for name in names
        if name in snapshot.queues and (not where.queue or name in _path(seen, where.queue))
    ]


def _visible(seen: Seen, caller: Caller, project: str) -> set[str]:
    """Return the queues that the project's jobs may use, and all queues above them.

    If `project` is empty, return those of all projects of the caller. A caller with a role in every project
    then sees all queues.
    """
    tree = seen.tree
    if not project and caller.is_everywhere:
        return set(seen.situation.snapshot.queues)
    projects = [project] if project else list(caller.roles)
    return {each for one in projects for leaf in tree.of_project(one) for each in tree.up_from(leaf)}


def _path(seen: Seen, queue: str) -> list[str]:
    return list(seen.tree.up_from(queue)) if queue in seen.tree.queues else [queue]


def _resources(seen: Seen, name: str, used: _Used) -> Iterator[UsedResource]:
    limits = seen.situation.snapshot.queues[name].limits
    for flavor in seen.situation.snapshot.flavors:
        for resource, capacity in flavor.capacity.items():
            amount = used.get((flavor.name, resource), 0)
            limit = limits.get(flavor.name, {}).get(resource)
            if not amount and limit is None:
                continue
            yield UsedResource(
                flavor.name,
                resource,
                quantity_of(resource, amount),
                quantity_of(resource, capacity),
                quantity_of(resource, limit.nominal) if limit is not None else None,
                amount / capacity if capacity else 0.0,
            )


def _recent_shares(seen: Seen) -> Mapping[str, float]:
    """Return each queue's part of the recent use by all queues with the same parent."""
    snapshot = seen.situation.snapshot
    shares = Shares(
        snapshot.flavors, snapshot.queues, snapshot.usage, seen.situation.now, seen.options.half_life
    )
    # `Shares.of` divides the use of a queue by its weight. The multiplication undoes this.
    own = {name: shares.of(name) * queue.weight for name, queue in snapshot.queues.items()}
    beside: dict[str, float] = {}
    for name, queue in snapshot.queues.items():
        beside[queue.parent] = beside.get(queue.parent, 0.0) + own[name]
    return {
        name: own[name] / beside[queue.parent] if beside[queue.parent] else 0.0
        for name, queue in snapshot.queues.items()
    }
