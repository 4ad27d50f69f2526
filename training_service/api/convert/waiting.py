"""Converts the queue, and the reasons why jobs wait, to messages."""

import re

from job_tracker.common.printable import quoted
from job_tracker.domain.errors import InvalidField
from job_tracker.scheduling.estimates import Estimate
from job_tracker.scheduling.model import Expected, Reason
from job_tracker.scheduling.queue_view import (
    Place,
    QueueFilter,
    QueuePage,
    QueueStanding,
    UsedResource,
    WaitingJob,
)
from job_tracker.scheduling.reasons import SENTENCES
from job_tracker.scheduling.remedies import Remedy
from job_tracker.scheduling.waiting_view import Explanation, Holder, Source
from training_service._generated import training_service_pb2 as pb
from training_service.api.caller import project_of
from training_service.api.convert.times import time_of, timestamp
from training_service.api.paging import page_size

_TOKEN = re.compile(r"([a-z0-9-]{1,64})/(-?[0-9]{1,10})/([0-9]{1,18})")


def explanation_of(explanation: Explanation) -> pb.ExplainTrainingResponse:
    """Return the message that says why a job waits."""
    job, promise = explanation.job, explanation.promise
    return pb.ExplainTrainingResponse(
        job_id=job.id,
        queue=job.spec.queue,
        position=explanation.position,
        reasons=[_reason(each, explanation.gate_note) for each in explanation.reasons],
        promised_start=timestamp(time_of(promise.at)) if promise is not None else None,
        flavor=promise.flavor if promise is not None else "",
        moved_because=explanation.moved_because,
        holders=map(_holder, explanation.holders),
        other_holders=explanation.other_holders,
        other_instances=explanation.other_instances,
        estimate=_estimate(explanation.estimate),
        remedies=[_remedy(explanation.remedy)] if explanation.remedy is not None else [],
        expected_run=_expected(explanation.expected, explanation.source),
        stopped=job.interrupted,
        stopping=map(_holder, explanation.stopping),
        other_stopping=explanation.other_stopping,
        wanted_flavor=job.spec.flavor,
    )


def queue_request_of(request: pb.GetQueueRequest) -> tuple[QueueFilter, int, Place | None]:
    """Return the filter, the size of the page, and the place after which the page begins.

    The place is None for the first page. Raises InvalidField if a field is invalid.
    """
    project = project_of("project", request.project) if request.project else ""
    where = QueueFilter(project=project, queue=request.queue)
    limit = page_size(request.page_size)
    if not request.page_token:
        return where, limit, None
    found = _TOKEN.fullmatch(request.page_token)
    if found is None:
        raise InvalidField(
            "page_token", f"{quoted(request.page_token)} is not allowed; send the next_page_token of a page"
        )
    return where, limit, (found[1], int(found[2]), int(found[3]))


def queue_of(page: QueuePage) -> pb.GetQueueResponse:
    """Return the message with a page of the queue."""
    return pb.GetQueueResponse(
        jobs=map(_waiting, page.jobs),
        queues=map(_standing, page.queues),
        next_page_token="/".join(map(str, page.after)) if page.after is not None else "",
    )


def _reason(reason: Reason, gate_note: str = "") -> pb.WaitingReason:
    return pb.WaitingReason(code=reason.value, message=gate_note or SENTENCES[reason])


def _remedy(remedy: Remedy) -> pb.Remedy:
    return pb.Remedy(code=remedy.cure.value, message=remedy.text, is_verified=remedy.is_verified)


def _estimate(estimate: Estimate | None) -> pb.StartEstimate | None:
    if estimate is None:
        return None
    return pb.StartEstimate(
        median=timestamp(time_of(estimate.median)),
        high=timestamp(time_of(estimate.high)),
        basis=estimate.basis.value,
    )


def _expected(expected: Expected | None, source: Source) -> pb.ExpectedRun | None:
    if expected is None:
        return None
    return pb.ExpectedRun(median_seconds=expected.median, high_seconds=expected.high, source=source.value)


def _holder(holder: Holder) -> pb.CapacityHolder:
    return pb.CapacityHolder(
        job_id=holder.job_id,
        name=holder.label.name,
        project=holder.label.project,
        queue=holder.queue,
        instances=holder.instances,
        admitted_at=timestamp(time_of(holder.admitted_at)),
    )


def _waiting(job: WaitingJob) -> pb.WaitingJob:
    gang, label = job.gang, job.label
    return pb.WaitingJob(
        job_id=gang.job_id,
        name=label.name,
        project=label.project,
        submitted_by=label.submitted_by,
        submitted_at=timestamp(label.submitted_at),
        queue=gang.queue,
        place=job.place,
        priority=gang.priority,
        instances=job.instances,
        reason=_reason(job.reason, label.gate_note),
        estimate=_estimate(job.estimate),
        stopped=label.why_again,
        stopping=job.stopping,
    )


def _standing(queue: QueueStanding) -> pb.QueueStanding:
    return pb.QueueStanding(
        name=queue.name,
        parent=queue.parent,
        weight=queue.weight,
        waiting=queue.waiting,
        running=queue.running,
        instances=queue.instances,
        used=map(_used, queue.used),
        share=queue.share,
        max_running=queue.max_running,
    )


def _used(used: UsedResource) -> pb.UsedResource:
    return pb.UsedResource(
        flavor=used.flavor,
        resource=used.resource,
        used=used.used,
        capacity=used.capacity,
        nominal=used.nominal,
        share=used.share,
    )
