"""The machines: the capacity of each flavor, the jobs on each machine, and the use by each project."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from job_tracker.scheduling.gangs import quantity_of
from job_tracker.scheduling.model import INSTANCES, Flavor
from job_tracker.scheduling.queue_snapshot import QueueSnapshot, SeenJob
from job_tracker.scheduling.shapes import held_parts, total
from training_service.web.visits import Visit

_MOST_NODES: Final = 500
_MOST_JOBS: Final = 100
_MOST_USERS: Final = 100


@dataclass(frozen=True, slots=True)
class Amount:
    """The used part of a resource."""

    resource: str
    used: str
    capacity: str
    """The capacity as a quantity. Empty: the resource is not limited."""
    share: float


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A machine, and the jobs on it."""

    name: str
    capacity: str
    is_open: bool
    jobs: Sequence[SeenJob]


@dataclass(frozen=True, slots=True)
class FlavorRow:
    """A kind of machine."""

    flavor: Flavor
    amounts: Sequence[Amount]
    nodes: Sequence[NodeRow]
    hidden_nodes: int
    jobs: Sequence[tuple[SeenJob, str]]
    """The jobs that hold resources of the flavor, each with these resources as text.

    Jobs with more instances come first.
    """
    hidden_jobs: int


async def machines(visit: Visit) -> Response:
    """Show the capacity and its use."""
    snapshot = await visit.jobs.snapshot(visit.who, with_machines=True)
    return visit.page(
        "machines.html",
        flavors=[_row(flavor, snapshot) for flavor in snapshot.flavors],
        projects=_users(snapshot, lambda job: job.project),
        people=_users(snapshot, lambda job: job.submitted_by),
        taken_at=snapshot.taken_at,
    )


def _row(flavor: Flavor, snapshot: QueueSnapshot) -> FlavorRow:
    used = Counter[str]()
    holders: list[tuple[SeenJob, dict[str, int]]] = []
    on_node = defaultdict[str, list[SeenJob]](list)
    for job in snapshot.jobs:
        if job.allocation is not None and job.allocation.flavor == flavor.name:
            held = total(held_parts(job.gang, job.allocation))
            used.update(held)
            holders.append((job, held))
            for node in dict.fromkeys(job.allocation.nodes):
                on_node[node].append(job)
    nodes = [
        NodeRow(node.name, _listed(node.capacity), node.is_open, on_node[node.name])
        for node in flavor.nodes[:_MOST_NODES]
    ]
    names = dict.fromkeys((*flavor.capacity, *used))
    amounts = [_amount(name, used[name], flavor.capacity) for name in names]
    holders.sort(key=lambda each: (-each[1][INSTANCES], each[0].gang.job_id))
    return FlavorRow(
        flavor,
        amounts,
        nodes,
        max(0, len(flavor.nodes) - _MOST_NODES),
        [(job, _listed(held)) for job, held in holders[:_MOST_JOBS]],
        max(0, len(holders) - _MOST_JOBS),
    )


def _amount(resource: str, used: int, capacity: Mapping[str, int]) -> Amount:
    limit = capacity.get(resource)
    return Amount(
        resource,
        quantity_of(resource, used),
        quantity_of(resource, limit) if limit is not None else "",
        min(1.0, used / limit) if limit else 0.0,
    )


def _listed(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{quantity_of(name, number)} {name}" for name, number in amounts.items())


def _users(snapshot: QueueSnapshot, user_of: Callable[[SeenJob], str]) -> list[tuple[str, int, int, int]]:
    """Return the names of users, each with its numbers of running jobs, running instances and waiting jobs.

    The users with the most running instances come first; at most _MOST_USERS are returned. `user_of` returns
    the user of a job: its project, or the caller who submitted it.
    """
    running, instances, waiting = Counter[str](), Counter[str](), Counter[str]()
    for job in snapshot.jobs:
        if job.allocation is None:
            waiting[user_of(job)] += 1
            continue
        running[user_of(job)] += 1
        instances[user_of(job)] += total(held_parts(job.gang, job.allocation))[INSTANCES]
    names = sorted({*running, *waiting}, key=lambda name: (-instances[name], name))
    return [(name, running[name], instances[name], waiting[name]) for name in names[:_MOST_USERS]]
