"""Checks of ended jobs against the answers to clients and the records of ranks."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.chaos.audit import Audit
from tests.chaos.clients import Played
from tests.chaos.victims import Victims
from training_service._generated import training_service_pb2 as pb

_KILLED = frozenset({"killed", "supervisor_lost", "pod_deleted", "node_lost", "group_vanished"})
"""The categories of attempts that lost a rank."""


def check_listed(played: Sequence[Played], listed: Sequence[pb.GetTrainingStatusResponse]) -> Iterator[str]:
    """Check that exactly the acknowledged jobs exist, and that their results are final."""
    acknowledged = Counter(each.job_id for each in played)
    yield from (f"job id {job} was given {count} times" for job, count in acknowledged.items() if count > 1)
    names = {job.job_id: job.metadata.name for job in listed}
    for each in played:
        if each.job_id not in names:
            yield f"job {each.job_id} ({each.plan.name}) was acknowledged but is lost"
        elif names[each.job_id] != each.plan.name:
            yield f"job {each.job_id} is {names[each.job_id]}, but was submitted as {each.plan.name}"
    for job_id in names.keys() - acknowledged.keys():
        yield f"job {job_id} ({names[job_id]}) was never acknowledged"
    ends = {each.job_id: each.end.status for each in played if each.end is not None}
    for job in listed:
        if job.status != ends.get(job.job_id, job.status):
            yield f"job {job.job_id} ended as {_name(ends[job.job_id])}, but is {_name(job.status)} now"


def check_honest(played: Played, audit: Audit, victims: Victims) -> Iterator[str]:
    """Check that an honest job went according to its plan, except for the effects of faults."""
    plan, job, end = played.plan, played.job_id, played.end
    name = f"job {job} ({plan.kind})"
    if end is None:
        yield f"{name} has not ended"
        return
    if end.status not in plan.ends:
        yield f"{name} ended as {_name(end.status)} in attempt {end.attempt}: {end.message}"
    failures = [(move.attempt, move.diagnosis.category) for move in end.moves if move.HasField("diagnosis")]
    for attempt, category in failures:
        is_own = plan.exit_code and category == "crashed"
        is_harmed = (job, attempt) in victims.attempts or (plan.may_lose_ranks and attempt == 1)
        if not is_own and not (category in _KILLED and is_harmed):
            yield f"{name} lost attempt {attempt} without a fault: {category}"
    yield from audit.doubles(job)
    yield from audit.overlaps(job, victims.forced)
    yield from audit.lost_steps(job)
    last = max((line.attempt for line in audit[job]), default=0)
    if last > end.attempt:
        yield f"{name} ran attempt {last}, but its status says {end.attempt}"
    ended = {(line.attempt, line.rank, line.what) for line in audit[job] if line.event == "end"}
    if end.status == pb.succeed and (end.attempt, 0, "0") not in ended:
        yield f"{name} succeeded, but rank 0 of attempt {end.attempt} did not"
    if end.status == pb.failure and not any(
        (attempt, what) == (end.attempt, str(plan.exit_code)) for attempt, _, what in ended
    ):
        yield f"{name} failed, but no rank of attempt {end.attempt} exited with {plan.exit_code}"


def _name(status: "pb.TrainingStatus.ValueType") -> str:
    return pb.TrainingStatus.Name(status)
