"""The queue as callers may see it, to simulate what becomes of it.

Jobs, queues and machines of which a caller may not know are in it, since they decide when others start. They
have no ids and no names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol

from job_tracker.domain.caller import Caller
from job_tracker.domain.job import Job, JobSpec
from job_tracker.scheduling.board import advanced, expected_as_said
from job_tracker.scheduling.gangs import gang_of
from job_tracker.scheduling.model import Allocation, Expected, Flavor, Gang, Queue, Usage
from job_tracker.scheduling.notes import usage_of_queues
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.tree import Tree
from job_tracker.store.queue import QueueView
from job_tracker.store.scheduling import SchedulingStore

MOST_JOBS: Final = 10_000
"""The running ones and the first that wait."""
_PAGE = 1000


class _Store(QueueView, SchedulingStore, Protocol):
    """The parts of a store that snapshots are made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenJob:
    """A job that waits or runs."""

    gang: Gang
    """Its id is 0 if the caller may not know of the job."""
    project: str
    """Empty if the caller may not know of the job."""
    submitted_at: datetime
    admitted_at: datetime | None = None
    """None: it waits."""
    allocation: Allocation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """The queue at one time."""

    taken_at: datetime
    flavors: Sequence[Flavor]
    queues: Mapping[str, Queue]
    usage: Mapping[str, Usage]
    jobs: Sequence[SeenJob]
    """Those that run, then the first that wait, in the order of submission."""
    omitted: int
    """The number of jobs that are left out."""
    options: PlannerOptions


class _Names:
    """The names that a caller sees in place of those of which it may not know."""

    def __init__(self, tree: Tree, caller: Caller) -> None:
        self._known = _known_queues(tree, caller)
        self._hidden: dict[str, str] = {}

    def of(self, queue: str) -> str:
        """Return the queue's name; "#1" and so on if the caller may not know it. No queue has such a name."""
        if not queue or self._known is None or queue in self._known:
            return queue
        return self._hidden.setdefault(queue, f"#{len(self._hidden) + 1}")


def _known_queues(tree: Tree, caller: Caller) -> Set[str] | None:
    """Return the queues that the caller's projects may use, with their parents; None: all."""
    if caller.is_everywhere:
        return None
    leaves = {leaf for project in caller.roles for leaf in tree.of_project(project)}
    return {each for leaf in leaves for each in tree.up_from(leaf)}


async def snapshot_of(
    store: _Store,
    tree: Tree,
    options: PlannerOptions,
    caller: Caller,
    now: datetime,
    expected_of: Callable[[JobSpec], Expected | None] = expected_as_said,
) -> QueueSnapshot:
    """Return the queue as the caller may see it."""
    live, queued = (await store.live_jobs())[:MOST_JOBS], list[Job]()
    in_all = sum((await store.queued_by_queue()).values())
    while len(live) + len(queued) < MOST_JOBS:
        page = await store.first_queued(_PAGE, queued[-1].id if queued else 0)
        queued += page[: MOST_JOBS - len(live) - len(queued)]
        if len(page) < _PAGE:
            break
    names = _Names(tree, caller)
    queues = tree.covering({job.spec.queue for job in (*live, *queued)})
    flavors, machines = _without_names(tree.pool.flavors)
    usage = await usage_of_queues(store)
    return QueueSnapshot(
        taken_at=now,
        flavors=flavors,
        queues={
            names.of(name): replace(queue, name=names.of(name), parent=names.of(queue.parent))
            for name, queue in queues.items()
        },
        usage={
            names.of(name): advanced(each, {}, now.timestamp(), options.half_life)
            for name, each in usage.items()
            if name in queues
        },
        jobs=[
            *(_seen(job, caller, names, expected_of, machines) for job in live),
            *(_seen(job, caller, names, expected_of, machines) for job in queued),
        ],
        omitted=max(0, in_all - len(queued)),
        options=options,
    )


def _seen(
    job: Job,
    caller: Caller,
    names: _Names,
    expected_of: Callable[[JobSpec], Expected | None],
    machines: Mapping[str, str],
) -> SeenJob:
    is_known = caller.role_in(job.spec.project) is not None
    gang = gang_of(job.id if is_known else 0, job.spec, expected_of(job.spec))
    allocation = None
    if job.state.is_live:
        allocation = job.allocation or Allocation()
        nodes = tuple(machines.get(name, "") for name in allocation.nodes)
        allocation = replace(allocation, nodes=nodes)
    return SeenJob(
        gang=replace(gang, queue=names.of(gang.queue)),
        project=job.spec.project if is_known else "",
        submitted_at=job.submitted_at,
        admitted_at=(job.admitted_at or job.submitted_at) if allocation is not None else None,
        allocation=allocation,
    )


def _without_names(flavors: Iterable[Flavor]) -> tuple[tuple[Flavor, ...], dict[str, str]]:
    """Return the flavors with numbers as names of their machines, and the numbers by name."""
    numbers: dict[str, str] = {}
    found = []
    for flavor in flavors:
        for node in flavor.nodes:
            numbers.setdefault(node.name, str(len(numbers) + 1))
        nodes = tuple(replace(node, name=numbers[node.name]) for node in flavor.nodes)
        found.append(replace(flavor, nodes=nodes))
    return tuple(found), numbers
