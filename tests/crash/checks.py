"""Checks of the jobs as clients see them, which must hold after any fault of the service."""

from collections.abc import Collection, Iterator, Sequence

from tests.crash.kept import KeptService
from tests.crash.scenario import CAPACITY, LARGER, SMALLER, PlannedJob, delete, submit
from training_service._generated import training_service_pb2 as pb

_LIVE = (pb.launch, pb.running)
_Pairs = Sequence[tuple[PlannedJob, pb.GetTrainingStatusResponse]]


LOST_LOGS = "lost logs"
"""An excuse: on a full disk, the logs of pods cannot be stored."""


_RUNS_TO_LEARN = 3


def check_jobs(
    service: KeptService,
    planned: Sequence[PlannedJob],
    ids: Sequence[int],
    excused: Collection[str],
    *,
    learns: bool = False,
    decides: bool = True,
) -> Iterator[str]:
    """Yield the problems with the jobs. Attempts may have failed with one of the `excused` categories.

    A service that `learns` how long jobs run lets some jobs start early, in gaps: from the third run on. If
    the service does not decide which jobs run, it launches jobs for the cluster's own queue.
    """
    if list(ids) != sorted(set(ids)):
        yield f"the ids are not increasing: {ids}"
    listed = {job.job_id: job for job in service.ask(lambda client: list(client.list()))}
    if sorted(listed) != sorted(ids):
        yield f"jobs {sorted(listed)} are listed, but {sorted(ids)} were acknowledged"
    pairs = [(plan, listed[job_id]) for plan, job_id in zip(planned, ids, strict=True) if job_id in listed]
    for plan, job in pairs:
        failures = tuple(move.diagnosis.category for move in job.moves if move.diagnosis.category)
        is_excused = job.status == pb.failure and failures[-1:] and failures[-1] in excused
        as_planned = job.status in plan.ends and plan.failures == tuple(
            category for category in failures if category not in (*excused, *plan.tolerated)
        )
        name = f"{plan.name} (job {job.job_id})"
        if not as_planned and not is_excused:
            details = [move.diagnosis.detail for move in job.moves if move.diagnosis.detail]
            ended = pb.TrainingStatus.Name(job.status)
            yield f"{name} ended as {ended} after {failures}: {job.message}; {details}"
        # A cancel that comes when the master has just succeeded stops the workers.
        stopped = {pb.RANK_PHASE_STOPPED} if pb.cancelled in plan.ends else set()
        if job.status == pb.succeed and {rank.phase for rank in job.ranks} - stopped != {
            pb.RANK_PHASE_SUCCEEDED
        }:
            yield f"{name} succeeded, but its ranks did not: {job.ranks}"
        stops = [move.preempted for move in job.moves if move.preempted]
        if not failures and not is_excused and [each.partition(":")[0] for each in stops] != [*plan.stops]:
            yield f"{name} was stopped, or changed its size, for other reasons than {plan.stops}: {job.moves}"
        if plan.is_evicted and not is_excused and job.evictions != 1:
            yield f"{name} was evicted {job.evictions} times instead of once: {job.moves}"
        if plan.restarts and job.status == pb.succeed and not failures:
            restarts = tuple(rank.restarts for rank in job.ranks)
            if restarts != plan.restarts:
                yield f"{name}: the numbers of restarts of its ranks are wrong: {restarts}"
        if submit(service, plan) != job.job_id:
            yield f"{name} got another id when it was submitted again"
        if plan.is_run and not is_excused and LOST_LOGS not in excused:
            yield from _check_logs(service, job)
    runs = sorted(
        move.at.ToNanoseconds() for _, job in pairs for move in job.moves if move.status == pb.running
    )
    until = runs[_RUNS_TO_LEARN - 1] if learns and len(runs) >= _RUNS_TO_LEARN else None
    if decides:
        yield from _check_order(pairs, until)
        yield from _check_capacity(pairs)


def check_deletion(service: KeptService, job_id: int, others: Collection[int]) -> Iterator[str]:
    """Delete an ended job. Yield problems unless this job is gone, and all other jobs remain."""
    delete(service, job_id)
    listed = sorted(job.job_id for job in service.ask(lambda client: list(client.list())))
    if listed != sorted(others):
        yield f"jobs {listed} are listed after the deletion of job {job_id}; there were {sorted(others)} more"


def _check_logs(service: KeptService, job: pb.GetTrainingStatusResponse) -> Iterator[str]:
    for rank in range(len(job.ranks)):
        pieces = service.ask(lambda client, rank=rank: list(client.logs(job.job_id, rank=rank)))  # type: ignore[misc]
        if f"rank {rank} of job {job.job_id}\n" not in "".join(piece.text for piece in pieces):
            yield f"the log of rank {rank} of job {job.job_id} is missing"


def _check_order(pairs: _Pairs, until: int | None) -> Iterator[str]:
    """Yield jobs that were admitted before an earlier job although there was not enough room for both.

    Admissions from `until` on are not checked. Jobs that fit together are admitted together, but written one
    by one. A failed write is repeated later.
    """
    sizes = {job.job_id: plan.instances for plan, job in pairs}
    admitted = sorted(
        (move.at.ToNanoseconds(), job.job_id)
        for _, job in pairs
        for move in job.moves
        if move.status == pb.launch
        and move.attempt == 1
        and (until is None or move.at.ToNanoseconds() < until)
    )
    for at, job_id in admitted:
        overtaken = [earlier for later, earlier in admitted if later > at and earlier < job_id]
        live = {mover: instances for when, mover, instances in _occupied(pairs) if when <= at}
        if overtaken and sum(live.values()) + sum(sizes[each] for each in overtaken) > CAPACITY:
            yield f"job {job_id} was admitted before {overtaken}, which did not fit beside {live}"


def _check_capacity(pairs: _Pairs) -> Iterator[str]:
    """Yield violations of the capacity."""
    live: dict[int, int] = {}
    for _, job_id, instances in _occupied(pairs):
        live[job_id] = instances
        if sum(live.values()) > CAPACITY:
            yield f"more than {CAPACITY} instances were live at once: {live}"


def _occupied(pairs: _Pairs) -> list[tuple[int, int, int]]:
    """List the changes of each job's live instances, by time. Releases come first at equal times."""
    moves = sorted(
        (move.at.ToNanoseconds(), move.status in _LIVE, job.job_id, instances)
        for plan, job in pairs
        for move, instances in _sizes(plan, job)
    )
    return [(at, job_id, instances if is_live else 0) for at, is_live, job_id, instances in moves]


def _sizes(plan: PlannedJob, job: pb.GetTrainingStatusResponse) -> Iterator[tuple[pb.Move, int]]:
    """Yield the moves of a job, with the instances that its attempt has at that time."""
    instances = plan.instances
    for move in job.moves:
        if move.preempted.startswith(SMALLER):
            instances = 1
        elif move.preempted.startswith(LARGER) or move.diagnosis.category:
            instances = plan.instances
        yield move, instances
