"""Why a job waits, who holds what it needs, when it may start, and what would help."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from job_tracker.scheduling.checks import fits_ever
from job_tracker.scheduling.estimates import Estimate, estimates
from job_tracker.scheduling.model import Gang, Limit, Plan, Queue, Reason, Snapshot
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.planner import plan as make_plan
from job_tracker.scheduling.shapes import with_trainers


@dataclass(frozen=True, slots=True)
class Holder:
    """A running job that holds what a waiting one needs."""

    job_id: int
    queue: str


@dataclass(frozen=True, slots=True)
class Remedy:
    """What would bring the start forward."""

    text: str
    is_verified: bool
    """Whether a plan with the change starts the job at once."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known about a waiting job."""

    reasons: tuple[Reason, ...]
    """The binding one first."""
    holders: tuple[Holder, ...]
    estimate: Estimate | None
    """None: it cannot start with the capacity as it is."""
    remedy: Remedy


def explain(
    snapshot: Snapshot, plan: Plan, job_id: int, now: float, options: PlannerOptions | None = None
) -> Explanation:
    """Explain why a waiting job waits. The plan is that of the same snapshot."""
    options = options or PlannerOptions()
    gang = snapshot.waiting.get(job_id)
    if gang is None:
        raise KeyError(f"job {job_id} does not wait")
    reasons = _reasons(snapshot, plan, gang)
    estimate = None
    if fits_ever(snapshot.queues, snapshot.flavors, gang) is None:
        estimate = estimates(snapshot, plan, now, options, until=job_id).get(job_id)
    return Explanation(
        reasons,
        _holders(snapshot, gang, reasons[0]),
        estimate,
        _remedy(snapshot, gang, reasons[0], now, options),
    )


def _reasons(snapshot: Snapshot, plan: Plan, gang: Gang) -> tuple[Reason, ...]:
    if any(admit.job_id == gang.job_id for admit in plan.admitted):
        return (Reason.PENDING,)
    for reserve in plan.reserved:
        if reserve.job_id == gang.job_id:
            return reserve.reasons
    if fits_ever(snapshot.queues, snapshot.flavors, gang) is not None:
        return (Reason.LOST_CAPACITY,)
    for reserve in plan.reserved:
        ahead = snapshot.waiting.get(reserve.job_id)
        if ahead is not None and ahead.queue == gang.queue:
            return (Reason.ORDER, reserve.reasons[0])
    return (Reason.SHARE, plan.reserved[0].reasons[0]) if plan.reserved else (Reason.PENDING,)


def _holders(snapshot: Snapshot, gang: Gang, reason: Reason) -> tuple[Holder, ...]:
    own = reason in (Reason.MAX_RUNNING, Reason.QUOTA)
    runs = snapshot.running.values()
    alike = (run for run in runs if not gang.flavors or run.allocation.flavor in gang.flavors)
    found = [run for run in alike if not own or run.gang.queue == gang.queue]
    return tuple(Holder(run.gang.job_id, run.gang.queue) for run in found or runs)


def _remedy(snapshot: Snapshot, gang: Gang, reason: Reason, now: float, options: PlannerOptions) -> Remedy:
    if reason is Reason.PENDING:
        return Remedy("Wait: the next pass decides about it.", is_verified=False)
    if snapshot.is_open:
        for text, changed in _changes(snapshot, gang):
            decided = make_plan(changed, now, options)
            if any(admit.job_id == gang.job_id for admit in decided.admitted):
                return Remedy(text, is_verified=True)
    return Remedy("Wait until running jobs end, or raise the capacity.", is_verified=False)


def _changes(snapshot: Snapshot, gang: Gang) -> Iterator[tuple[str, Snapshot]]:
    """Return the changes to try, those that its owner can make first."""
    asked = gang.parts[0].count if gang.parts else 0
    sizes = {asked * share // 4 for share in (1, 2, 3)} | {1}
    for trainers in sorted(sizes, reverse=True):
        if 0 < trainers < asked:
            smaller = replace(gang, parts=with_trainers(gang.parts, trainers), least=0)
            yield f"Ask for {trainers} trainers instead of {asked}.", _with(snapshot, smaller)
    for flavor in snapshot.flavors if gang.flavors else ():
        if flavor.name not in gang.flavors:
            yield f"Ask for the flavor {flavor.name}.", _with(snapshot, replace(gang, flavors=(flavor.name,)))
    queue = snapshot.queues.get(gang.queue, Queue(name=gang.queue))
    others = [other.priority for other in _first(snapshot.waiting.in_order(gang.queue))]
    top = max(others, default=gang.priority) + 1
    if queue.max_priority is not None:
        top = min(top, queue.max_priority)
    if top > gang.priority:
        raised = replace(gang, priority=top)
        yield f"Ask for the priority {top}.", _with(snapshot, raised)
    path = _path(snapshot, gang.queue)
    freed = {node.name: replace(node, limits=_lifted(node), max_running=None) for node in path}
    if any(node.limits or node.max_running is not None for node in path):
        changed = replace(snapshot, queues={**snapshot.queues, **freed})
        yield f"Raise the quota or max_running of the queue {gang.queue} and its parents.", changed
    yield from _more_capacity(snapshot, gang)


def _more_capacity(snapshot: Snapshot, gang: Gang) -> Iterator[tuple[str, Snapshot]]:
    waiting = len(snapshot.waiting)
    for flavor in snapshot.flavors:
        if flavor.nodes or (gang.flavors and flavor.name not in gang.flavors):
            continue
        for factor in (2, 4, max(8, waiting)):
            capacity = {name: amount * factor for name, amount in flavor.capacity.items()}
            larger = replace(flavor, capacity=capacity)
            flavors = tuple(larger if other is flavor else other for other in snapshot.flavors)
            yield (
                f"Raise the capacity of the flavor {flavor.name} {factor} times.",
                replace(snapshot, flavors=flavors),
            )


def _lifted(queue: Queue) -> dict[str, dict[str, Limit]]:
    return {
        flavor: {name: Limit(nominal=limit.nominal * 4 + 64) for name, limit in limits.items()}
        for flavor, limits in queue.limits.items()
    }


def _path(snapshot: Snapshot, name: str) -> list[Queue]:
    found: list[Queue] = []
    while name in snapshot.queues and all(node.name != name for node in found):
        found.append(snapshot.queues[name])
        name = snapshot.queues[name].parent
    return found


def _first(gangs: Iterable[Gang]) -> Iterator[Gang]:
    for gang in gangs:
        yield gang
        return


class _Changed:
    """The waiting gangs with one of them changed, without a copy of all."""

    def __init__(self, snapshot: Snapshot, gang: Gang) -> None:
        self._waiting = snapshot.waiting
        self._gang = gang

    def queues(self) -> Iterable[str]:
        return self._waiting.queues()

    def in_order(self, queue: str) -> Iterator[Gang]:
        mine = self._gang
        pending = queue == mine.queue
        for gang in self._waiting.in_order(queue):
            if gang.job_id == mine.job_id:
                continue
            if pending and (-mine.priority, mine.job_id) < (-gang.priority, gang.job_id):
                pending = False
                yield mine
            yield gang
        if pending:
            yield mine

    def get(self, job_id: int) -> Gang | None:
        return self._gang if job_id == self._gang.job_id else self._waiting.get(job_id)

    def __len__(self) -> int:
        return len(self._waiting)


def _with(snapshot: Snapshot, gang: Gang) -> Snapshot:
    promises = {job_id: promise for job_id, promise in snapshot.promises.items() if job_id != gang.job_id}
    return replace(snapshot, waiting=_Changed(snapshot, gang), promises=promises)
