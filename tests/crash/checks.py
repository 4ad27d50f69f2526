"""What must be true of the jobs as clients see them, whatever happened to the service."""

from collections.abc import Collection, Iterator, Sequence

from tests.crash.kept import KeptService
from tests.crash.scenario import CAPACITY, PlannedJob, submit
from training_service._generated import training_service_pb2 as pb

_LIVE = (pb.launch, pb.running)
_Pairs = Sequence[tuple[PlannedJob, pb.GetTrainingStatusResponse]]


LOST_LOGS = "lost logs"
"""An excuse: a full disk has no room for what pods printed."""


def check_jobs(
    service: KeptService, planned: Sequence[PlannedJob], ids: Sequence[int], excused: Collection[str]
) -> Iterator[str]:
    """What is wrong with the jobs; attempts may have failed with the categories that are excused."""
    if list(ids) != sorted(set(ids)):
        yield f"ids do not grow: {ids}"
    listed = {job.job_id: job for job in service.ask(lambda client: list(client.list()))}
    if sorted(listed) != sorted(ids):
        yield f"jobs {sorted(listed)} are listed, and {sorted(ids)} were acknowledged"
    pairs = [(plan, listed[job_id]) for plan, job_id in zip(planned, ids, strict=True) if job_id in listed]
    for plan, job in pairs:
        failures = tuple(move.diagnosis.category for move in job.moves if move.diagnosis.category)
        is_excused = job.status == pb.failure and failures[-1:] and failures[-1] in excused
        as_planned = job.status in plan.ends and plan.failures == tuple(
            category for category in failures if category not in (*excused, *plan.tolerated)
        )
        name = f"{plan.name} (job {job.job_id})"
        if not as_planned and not is_excused:
            yield f"{name} ended as {pb.TrainingStatus.Name(job.status)} after {failures}: {job.message}"
        if job.status == pb.succeed and {rank.phase for rank in job.ranks} != {pb.RANK_PHASE_SUCCEEDED}:
            yield f"{name} succeeded, and its ranks did not: {job.ranks}"
        if plan.restarts and job.status == pb.succeed and not failures:
            restarts = tuple(rank.restarts for rank in job.ranks)
            if restarts != plan.restarts:
                yield f"{name}: its ranks were started anew so often: {restarts}"
        if submit(service, plan) != job.job_id:
            yield f"{name} got another id when it was asked for again"
        if plan.is_run and not is_excused and LOST_LOGS not in excused:
            yield from _check_logs(service, job)
    yield from _check_order(pairs)
    yield from _check_capacity(pairs)


def _check_logs(service: KeptService, job: pb.GetTrainingStatusResponse) -> Iterator[str]:
    for rank in range(len(job.ranks)):
        pieces = service.ask(lambda client, rank=rank: list(client.logs(job.job_id, rank=rank)))  # type: ignore[misc]
        if f"rank {rank} of job {job.job_id}\n" not in "".join(piece.text for piece in pieces):
            yield f"the log of rank {rank} of job {job.job_id} is not there"


def _check_order(pairs: _Pairs) -> Iterator[str]:
    """Whether a job's first attempt was admitted before an earlier one's, and there was no room for both.

    What fits together is admitted together, each by a write of its own; one that fails is repeated later.
    """
    sizes = {job.job_id: plan.instances for plan, job in pairs}
    admitted = sorted(
        (move.at.ToNanoseconds(), job.job_id)
        for _, job in pairs
        for move in job.moves
        if move.status == pb.launch and move.attempt == 1
    )
    for at, job_id in admitted:
        overtaken = [earlier for later, earlier in admitted if later > at and earlier < job_id]
        live = {mover: instances for when, mover, instances in _occupied(pairs) if when <= at}
        if overtaken and sum(live.values()) + sum(sizes[each] for each in overtaken) > CAPACITY:
            yield f"job {job_id} was admitted before {overtaken}, which had no room beside {live}"


def _check_capacity(pairs: _Pairs) -> Iterator[str]:
    """Whether more ran at once than should."""
    live: dict[int, int] = {}
    for _, job_id, instances in _occupied(pairs):
        live[job_id] = instances
        if sum(live.values()) > CAPACITY:
            yield f"more than {CAPACITY} instances were live at once: {live}"


def _occupied(pairs: _Pairs) -> list[tuple[int, int, int]]:
    """When which job came to have how many live instances; at one moment, those that let go of some first."""
    moves = sorted(
        (move.at.ToNanoseconds(), move.status in _LIVE, job.job_id, plan.instances)
        for plan, job in pairs
        for move in job.moves
    )
    return [(at, job_id, instances if is_live else 0) for at, is_live, job_id, instances in moves]
