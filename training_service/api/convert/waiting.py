"""Why a job waits."""

from datetime import UTC, datetime

from job_tracker.domain.job import Job
from job_tracker.scheduling.waiting_view import SENTENCES, Explanation
from training_service._generated import training_service_pb2 as pb
from training_service.api.convert.times import timestamp


def explanation_of(explanation: Explanation) -> pb.ExplainTrainingResponse:
    """The message that says why a job waits."""
    job, promise = explanation.job, explanation.promise
    return pb.ExplainTrainingResponse(
        job_id=job.id,
        queue=job.spec.queue,
        position=explanation.position,
        reasons=[
            pb.WaitingReason(code=reason.value, message=SENTENCES[reason]) for reason in explanation.reasons
        ],
        promised_start=timestamp(_moment(promise.at)) if promise is not None else None,
        flavor=promise.flavor if promise is not None else "",
        moved_because=explanation.moved_because,
        holders=map(_holder, explanation.holders),
        other_holders=len(explanation.others),
        other_instances=sum(each.instances for each in explanation.others),
    )


def _holder(job: Job) -> pb.CapacityHolder:
    return pb.CapacityHolder(
        job_id=job.id,
        name=job.spec.name,
        project=job.spec.project,
        queue=job.spec.queue,
        instances=job.instances,
        admitted_at=timestamp(job.admitted_at),
    )


def _moment(at: float) -> datetime | None:
    """Return the time; None if no datetime can be so late."""
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        return None
