"""The queue as a caller may see it, for simulations of its future.

The snapshot also includes jobs, queues and machines that the caller has no right to see, since the starts of
other jobs depend on them. Their ids and names are left out or replaced.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import nsmallest
from typing import Final

from job_tracker.domain.caller import Caller
from job_tracker.scheduling.mirror import MOST_QUEUED, Seen
from job_tracker.scheduling.model import (
    Allocation,
    Flavor,
    Gang,
    Promise,
    Queue,
    Running,
    Snapshot,
    Stake,
    Usage,
)
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.tree import Tree

MOST_JOBS: Final = 10_000
"""The largest number of jobs in a snapshot: running jobs, and the first waiting jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenJob:
    """A job that waits or runs, as the caller may see it."""

    gang: Gang
    """The job's gang. Its id is 0 if the caller has no right to see the job."""
    project: str
    """The job's project. Empty: the caller has no right to see the job."""
    name: str = ""
    """The job's name. Empty: the caller has no right to see the job."""
    submitted_by: str = ""
    """The name of the caller that submitted the job. Empty: as in `name`."""
    submitted_at: datetime
    admitted_at: datetime | None = None
    """The time at which the scheduler admitted the job. None: the job waits."""
    allocation: Allocation | None = None
    promise: Promise | None = None
    stake: Stake | None = None
    """The facts about stopping the job. None: the job waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """The queue at one time."""

    taken_at: datetime
    flavors: Sequence[Flavor]
    queues: Mapping[str, Queue]
    usage: Mapping[str, Usage]
    jobs: Sequence[SeenJob]
    """The running jobs, and then the waiting jobs.

    Both are in the order of submission. If `lanes` limits them (see `snapshot_of`), the running jobs are in
    the order of their starts, and the waiting jobs in the order of their reserved starts.
    """
    omitted: int
    """The number of waiting jobs that are left out."""
    options: PlannerOptions
    omitted_running: int = 0
    """The number of running jobs that are left out."""


class _Names:
    """Replaces the names of queues that the caller has no right to see."""

    def __init__(self, tree: Tree, caller: Caller) -> None:
        self._known = _known_queues(tree, caller)
        self._hidden: dict[str, str] = {}

    def of(self, queue: str) -> str:
        """Return the queue's name. If the caller has no right to see the queue, return "#1", "#2" and so on,
        which are unlike any real name.
        """
        if not queue or self._known is None or queue in self._known:
            return queue
        return self._hidden.setdefault(queue, f"#{len(self._hidden) + 1}")


def _known_queues(tree: Tree, caller: Caller) -> Set[str] | None:
    """Return the queues that the caller's projects may use, and all queues above them; None: all queues."""
    if caller.is_everywhere:
        return None
    leaves = {leaf for project in caller.roles for leaf in tree.of_project(project)}
    return {each for leaf in leaves for each in tree.up_from(leaf)}


def snapshot_of(
    seen: Seen, caller: Caller, queued: int, *, with_machines: bool = False, lanes: int | None = None
) -> QueueSnapshot:
    """Return the queue as the caller may see it.

    `queued` is the number of all waiting jobs, which may be more than were copied. With `with_machines`,
    machines keep their names if the caller has a role in all projects. `lanes` is the largest number of
    running jobs (those that started first) and of waiting jobs (those with the earliest reserved starts).
    None: at most MOST_JOBS jobs are returned.
    """
    snapshot = seen.situation.snapshot
    names = _Names(seen.tree, caller)
    flavors, machines = _without_names(snapshot.flavors)
    if with_machines and caller.is_everywhere:
        flavors, machines = tuple(snapshot.flavors), {name: name for name in machines}
    if lanes is None:
        running = sorted(snapshot.running.values(), key=lambda each: each.gang.job_id)[:MOST_JOBS]
        every = (gang for queue in snapshot.waiting.queues() for gang in snapshot.waiting.in_order(queue))
        waiting = sorted(every, key=lambda gang: gang.job_id)[: MOST_JOBS - len(running)]
    else:
        running = nsmallest(lanes, snapshot.running.values(), key=lambda each: each.started_at)
        waiting = _first_reserved(snapshot, lanes)
    copied = len(snapshot.waiting)
    in_all = max(copied, queued) if copied >= MOST_QUEUED else copied

    def made(gang: Gang, run: Running | None = None) -> SeenJob:
        label = seen.labels[gang.job_id]
        is_known = caller.role_in(label.project) is not None
        return SeenJob(
            gang=replace(gang, job_id=gang.job_id if is_known else 0, queue=names.of(gang.queue)),
            project=label.project if is_known else "",
            name=label.name if is_known else "",
            submitted_by=label.submitted_by if is_known else "",
            submitted_at=label.submitted_at,
            admitted_at=datetime.fromtimestamp(run.started_at, UTC) if run is not None else None,
            allocation=_without_node_names(run.allocation, machines) if run is not None else None,
            promise=snapshot.promises.get(gang.job_id),
            stake=snapshot.stakes.get(gang.job_id),
        )

    return QueueSnapshot(
        taken_at=datetime.fromtimestamp(seen.situation.now, UTC),
        flavors=flavors,
        queues={
            names.of(name): replace(queue, name=names.of(name), parent=names.of(queue.parent))
            for name, queue in snapshot.queues.items()
        },
        usage={names.of(name): each for name, each in snapshot.usage.items() if name in snapshot.queues},
        jobs=[*(made(each.gang, each) for each in running), *map(made, waiting)],
        omitted=in_all - len(waiting),
        options=seen.options,
        omitted_running=len(snapshot.running) - len(running),
    )


def _first_reserved(snapshot: Snapshot, most: int) -> list[Gang]:
    """Return the waiting gangs with the earliest reserved starts, at most `most`."""
    reserved = (
        (promise.at, gang)
        for job_id, promise in snapshot.promises.items()
        if promise.at < math.inf and (gang := snapshot.waiting.get(job_id)) is not None
    )
    return [gang for _, gang in nsmallest(most, reserved, key=lambda each: each[0])]


def _without_node_names(allocation: Allocation, machines: Mapping[str, str]) -> Allocation:
    return replace(allocation, nodes=tuple(machines.get(name, "") for name in allocation.nodes))


def _without_names(flavors: Iterable[Flavor]) -> tuple[tuple[Flavor, ...], dict[str, str]]:
    """Return the flavors with numbers in place of the names of machines, and the number of each machine by
    name.

    The machines' labels and places are left out.
    """
    numbers: dict[str, str] = {}
    found = []
    for flavor in flavors:
        for node in flavor.nodes:
            numbers.setdefault(node.name, str(len(numbers) + 1))
        nodes = tuple(replace(node, name=numbers[node.name], labels={}, places={}) for node in flavor.nodes)
        found.append(replace(flavor, nodes=nodes))
    return tuple(found), numbers
