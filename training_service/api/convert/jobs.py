"""The status message of a job."""

from collections.abc import Mapping

from job_tracker.domain.diagnosis import Diagnosis
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job, JobState
from job_tracker.domain.pace import RankPace
from job_tracker.domain.progress import Progress
from job_tracker.jobs import JobView
from training_service._generated import training_service_pb2 as pb
from training_service.api.convert.requests import program_of
from training_service.api.convert.sentences import message_of
from training_service.api.convert.times import duration_of, timestamp

STATUSES: Mapping[JobState, pb.TrainingStatus.ValueType] = {
    JobState.QUEUED: pb.queuing,
    JobState.LAUNCHING: pb.launch,
    JobState.RUNNING: pb.running,
    JobState.BACKOFF: pb.queuing,
    JobState.SUCCEEDED: pb.succeed,
    JobState.FAILED: pb.failure,
    JobState.CANCELLED: pb.cancelled,
}
_PHASES: Mapping[Phase, pb.RankPhase.ValueType] = {
    Phase.PENDING: pb.RANK_PHASE_PENDING,
    Phase.RUNNING: pb.RANK_PHASE_RUNNING,
    Phase.SUCCEEDED: pb.RANK_PHASE_SUCCEEDED,
    Phase.FAILED: pb.RANK_PHASE_FAILED,
    Phase.STOPPED: pb.RANK_PHASE_STOPPED,
}


def entry_of(view: JobView) -> pb.GetTrainingStatusResponse:
    """Return the status message of a job in a list: without the program, whose command may have 64 KiB."""
    status = status_of(view)
    status.ClearField("program")
    return status


def status_of(view: JobView) -> pb.GetTrainingStatusResponse:
    """Return the status message of a job."""
    job, spec = view.job, view.job.spec
    paces = _paces(job)
    return pb.GetTrainingStatusResponse(
        status=STATUSES[job.state],
        job_id=job.id,
        message=message_of(view),
        metadata=pb.TrainingJobMetadata(
            algorithm=spec.algorithm,
            dataset_id=spec.dataset_id,
            name=spec.name,
            train_data_version_hash=spec.dataset_version,
            parameters=spec.parameters,
            output_model_name=spec.model_name,
        ),
        positionInQueue=view.position,
        algorithm_version=spec.algorithm_version,
        dataset_declaration=spec.dataset_declaration,
        program=program_of(spec),
        attempt=job.attempt,
        submitted_at=timestamp(job.submitted_at),
        started_at=timestamp(job.started_at),
        finished_at=timestamp(job.finished_at),
        instances=job.instances,
        ranks=[
            pb.RankStatus(
                rank=r.rank,
                role=role,
                restarts=r.restarts,
                phase=_PHASES[r.phase],
                exit_code=r.exit_code,
                note=r.note,
                pace=paces.get(r.rank),
            )
            for r, role in zip(job.ranks, job.allocated_group.role_of_ranks, strict=False)
        ],
        diagnosis=_diagnosis(job.diagnosis),
        progress=_progress(job.progress, goes_on=job.state is JobState.RUNNING and job.ending is None),
        ending=job.ending is not None and not job.state.is_terminal,
        model_uri=job.model_uri,
        has_model=job.has_model,
        max_attempts=job.max_attempts,
        preemptions=job.preemptions,
        evictions=job.evictions,
        moves=[
            pb.Move(
                status=STATUSES[move.state],
                at=timestamp(move.at),
                attempt=move.attempt,
                diagnosis=_diagnosis(move.diagnosis),
                preempted=move.preemption.sentence(spec.project) if move.preemption else "",
                evicted=move.eviction.sentence() if move.eviction else "",
            )
            for move in job.history
        ],
        next_attempt_at=timestamp(job.due_at) if job.state is JobState.BACKOFF else None,
        deadline_at=timestamp(job.due_at) if job.state is not JobState.BACKOFF else None,
        project=spec.project,
        submitted_by=spec.submitted_by,
        tags=job.tags,
        note=job.note,
        queue=spec.queue,
        priority=spec.priority,
        expected=duration_of(spec.expected) if spec.expected else None,
        flavor=spec.flavor,
    )


def without_cancelled(serialized: bytes) -> bytes:
    """Return the serialized status with `failure` in place of `cancelled`, for clients that do not know
    `cancelled`.

    The sentences in its `message` are not changed.
    """
    status = pb.GetTrainingStatusResponse.FromString(serialized)
    if status.status == pb.cancelled:
        status.status = pb.failure
    for move in status.moves:
        if move.status == pb.cancelled:
            move.status = pb.failure
    return status.SerializeToString()


def _diagnosis(diagnosis: Diagnosis | None) -> pb.Diagnosis | None:
    if diagnosis is None:
        return None
    return pb.Diagnosis(
        category=diagnosis.category,
        summary=diagnosis.summary,
        detail=diagnosis.detail,
        resolution=diagnosis.resolution,
        retryable=diagnosis.retryable,
        rank=diagnosis.rank,
        cause=diagnosis.cause,
    )


def _paces(job: Job) -> dict[int, pb.RankPace]:
    """Return the pace of each instance that reports one, by its number (the `rank` of statuses).

    If an instance has several processes, its pace is that of the process with the fewest steps.
    """
    per_rank = job.spec.group.trainers.processes
    paces: dict[int, RankPace] = {}
    for pace in job.progress.ranks if job.progress else ():
        known = paces.setdefault(pace.process // per_rank, pace)
        if (pace.step or 0) < (known.step or 0):
            paces[pace.process // per_rank] = pace
    return {
        rank: pb.RankPace(
            step=pace.step,
            phase=pace.activity,
            heard_at=timestamp(pace.heard_at),
            step_seconds=pace.step_seconds,
            waiting_seconds=pace.waiting_seconds,
            slowness=pace.slowness,
            slow_since=timestamp(pace.slow_since),
        )
        for rank, pace in paces.items()
    }


def _progress(progress: Progress | None, *, goes_on: bool) -> pb.Progress | None:
    """Return the progress message; None if there is no progress.

    The message has the speed and the remaining time only if training continues (`goes_on`).
    """
    if progress is None:
        return None
    return pb.Progress(
        step=progress.step,
        total_steps=progress.total_steps,
        epoch=progress.epoch,
        total_epochs=progress.total_epochs,
        metrics=progress.metrics,
        reported_at=timestamp(progress.reported_at),
        steps_per_second=progress.speed if goes_on else 0.0,
        seconds_left=progress.seconds_left if goes_on else None,
        nonfinite=[
            pb.NonfiniteMetric(
                metric=each.metric,
                value=each.value,
                step=each.step,
                at=timestamp(each.at),
                rank=each.rank,
            )
            for each in progress.nonfinite
        ],
        checkpoint=pb.SavedCheckpoint(step=progress.saved.step, at=timestamp(progress.saved.at))
        if progress.saved
        else None,
    )
