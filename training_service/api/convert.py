"""Converts between messages of the API and types of the domain."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import TypeAdapter

from job_tracker.admission.admission import JobRequest
from job_tracker.admission.programs import ProgramRequest
from job_tracker.backends.shared.log_ends import line_of_cause
from job_tracker.common.printable import printable, quoted, without_secrets
from job_tracker.domain import naming
from job_tracker.domain.caller import Caller
from job_tracker.domain.diagnosis import Diagnosis
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.group import InstanceOptions, Phase
from job_tracker.domain.job import Job, JobSpec, JobState, ProgramChanges, Progress
from job_tracker.domain.pace import RankPace
from job_tracker.domain.tags import Annotation, checked_count, checked_tags
from job_tracker.domain.telemetry import Artifact, MetricSeries
from job_tracker.jobs import JobView
from job_tracker.logs.reader import LogPiece, LogRequest
from job_tracker.reports.lines import is_report
from job_tracker.store.jobs import JobFilter
from training_service._generated import training_service_pb2 as pb

STATUSES: Mapping[JobState, pb.TrainingStatus.ValueType] = {
    JobState.QUEUED: pb.queuing,
    JobState.LAUNCHING: pb.launch,
    JobState.RUNNING: pb.running,
    JobState.BACKOFF: pb.queuing,
    JobState.SUCCEEDED: pb.succeed,
    JobState.FAILED: pb.failure,
    JobState.CANCELLED: pb.cancelled,
}
_STATES = {status: {s for s in JobState if STATUSES[s] == status} for status in STATUSES.values()}

_PHASES: Mapping[Phase, pb.RankPhase.ValueType] = {
    Phase.PENDING: pb.RANK_PHASE_PENDING,
    Phase.RUNNING: pb.RANK_PHASE_RUNNING,
    Phase.SUCCEEDED: pb.RANK_PHASE_SUCCEEDED,
    Phase.FAILED: pb.RANK_PHASE_FAILED,
    Phase.STOPPED: pb.RANK_PHASE_STOPPED,
}

_DEFAULT_PAGE, _LARGEST_PAGE = 50, 1000
_LONGEST_ID = 18  # digits; ids are shorter
_LONGEST_LAST_LINE = 200  # characters
_SENT = TypeAdapter(InstanceOptions)


def request_of(message: pb.TrainRequest) -> JobRequest:
    """The job request in a message."""
    metadata = message.metadata
    return JobRequest(
        algorithm=metadata.algorithm,
        dataset_id=metadata.dataset_id,
        dataset_version=metadata.train_data_version_hash,
        name=metadata.name,
        model_name=metadata.output_model_name,
        parameters=dict(metadata.parameters),
        request_key=message.request_key,
        # Only the fields that were sent, to distinguish an absent field from a default value.
        pod_options=(
            MessageToDict(message.pod_options, preserving_proto_field_name=True)
            if message.HasField("pod_options")
            else {}
        ),
        retry=dict(_retry_of(message.retry_policy)) if message.HasField("retry_policy") else {},
        deadlines=(
            {field.name: _seconds(duration) for field, duration in message.deadlines.ListFields()}
            if message.HasField("deadlines")
            else {}
        ),
        numbers=MessageToDict(message.number_policy, preserving_proto_field_name=True),
        program=_program_of(message.program) if message.HasField("program") else None,
        tags=tuple(message.tags),
    )


def _program_of(message: pb.Program) -> ProgramRequest:
    return ProgramRequest(
        tree=message.tree,
        command=tuple(message.command),
        framework=message.framework,
        environment=dict(message.environment),
        version=message.version,
        requirements=message.requirements,
        python_environment=message.python_environment,
        changes=_changes_of(message.changes) if message.HasField("changes") else None,
    )


def _changes_of(message: pb.ProgramChanges) -> ProgramChanges:
    return ProgramChanges(message.tree, max(0, message.added), max(0, message.removed))


def _retry_of(message: pb.RetryPolicy) -> Iterator[tuple[str, Any]]:
    """The fields of the retry policy that were sent."""
    if message.HasField("max_attempts"):
        yield "max_attempts", message.max_attempts
    if message.HasField("backoff"):
        yield "backoff", _seconds(message.backoff)
    if message.HasField("max_backoff"):
        yield "max_backoff", _seconds(message.max_backoff)
    if message.retry_on:
        yield "retry_on", list(message.retry_on)


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def project_of(field: str, text: str) -> str:
    """The name of a project. Raises InvalidField if no project can have it."""
    if not naming.is_project(text):
        raise InvalidField(field, f"{quoted(text)} is not the name of a project: {naming.PROJECT_RULE}")
    return text


def page_of(caller: Caller, message: pb.ListTrainingJobsRequest) -> tuple[JobFilter, int, int | None]:
    """The filter, the size of the page, and an id: its jobs have lower ids. Raises InvalidField."""
    if not 0 <= message.page_size <= _LARGEST_PAGE:
        raise InvalidField("page_size", f"{message.page_size} is not allowed; allowed: 0 to {_LARGEST_PAGE}")
    if message.page_token and not (message.page_token.isascii() and message.page_token.isdigit()):
        raise InvalidField(
            "page_token", f"{quoted(message.page_token)} is not allowed; send the next_page_token of a page"
        )
    try:
        states = frozenset[JobState]().union(*(_STATES[status] for status in message.statuses))
    except KeyError as error:
        allowed = ", ".join(pb.TrainingStatus.keys())
        raise InvalidField(
            "statuses", f"{error} is not a TrainingStatus; allowed: {allowed} (0 to {max(_STATES)})"
        ) from error
    if message.all_projects and message.project:
        raise InvalidField("project", f"{quoted(message.project)} is not allowed with all_projects")
    if message.mine and message.submitted_by:
        raise InvalidField("submitted_by", f"{quoted(message.submitted_by)} is not allowed with mine")
    if message.before_job < 0:
        raise InvalidField("before_job", f"{message.before_job} is not allowed; send the id of a job, or 0")
    tags = checked_count("tags", checked_tags("tags", message.tags))
    project = project_of("project", message.project) if message.project else caller.default_project
    where = JobFilter(
        states,
        message.name_prefix,
        message.algorithm,
        caller.name if message.mine else message.submitted_by,
        None if message.all_projects else frozenset({project}),
        frozenset(tags),
        *(
            _moment(field, getattr(message, field)) if message.HasField(field) else None
            for field in ("submitted_since", "submitted_before")
        ),
    )
    bounds = [_id_of(message.page_token)] if message.page_token else []
    if message.before_job:
        bounds.append(message.before_job)
    before = min(bounds, default=None)
    return where, message.page_size or _DEFAULT_PAGE, before


def _id_of(digits: str) -> int:
    """The number, or one above all ids if it is long: int() accepts at most 4,300 digits, including zeros."""
    significant = digits.lstrip("0") or "0"
    return int(significant) if len(significant) < _LONGEST_ID else 10**_LONGEST_ID


def annotation_of(message: pb.AnnotateTrainingRequest) -> Annotation:
    """The change of tags and note in a message."""
    note = message.note if message.HasField("note") else None
    return Annotation(tuple(message.add_tags), tuple(message.remove_tags), note)


def logs_of(message: pb.GetTrainingLogsRequest) -> tuple[int, LogRequest]:
    """The id of the job, and the selected log. Raises InvalidField."""
    return message.job_id, LogRequest(
        rank=message.rank,
        all_ranks=message.all_ranks,
        attempt=message.attempt,
        follow=message.follow,
        tail_lines=message.tail_lines if message.HasField("tail_lines") else None,
        since=_moment("since", message.since) if message.HasField("since") else None,
        position=message.position,
    )


def log_of(piece: LogPiece, *, timestamps: bool) -> pb.GetTrainingLogsResponse:
    """The message with a piece of a log."""
    return pb.GetTrainingLogsResponse(
        text=piece.timed_text if timestamps else piece.text,
        rank=piece.rank,
        attempt=piece.attempt,
        position=str(piece.position),
    )


def status_of(view: JobView) -> pb.GetTrainingStatusResponse:
    """The status message of a job."""
    job, spec = view.job, view.job.spec
    paces = _paces(job)
    return pb.GetTrainingStatusResponse(
        status=STATUSES[job.state],
        job_id=job.id,
        message=_message(view),
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
        attempt=job.attempt,
        submitted_at=_timestamp(job.submitted_at),
        started_at=_timestamp(job.started_at),
        finished_at=_timestamp(job.finished_at),
        instances=spec.instances,
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
            for r, role in zip(job.ranks, spec.group.role_of_ranks, strict=False)
        ],
        diagnosis=_diagnosis(job.diagnosis),
        progress=_progress(job.progress, goes_on=job.state is JobState.RUNNING and job.ending is None),
        ending=job.ending is not None and not job.state.is_terminal,
        model_uri=job.model_uri,
        has_model=job.has_model,
        max_attempts=spec.retry.max_attempts,
        moves=[
            pb.Move(
                status=STATUSES[move.state],
                at=_timestamp(move.at),
                attempt=move.attempt,
                diagnosis=_diagnosis(move.diagnosis),
            )
            for move in job.history
        ],
        next_attempt_at=_timestamp(job.due_at) if job.state is JobState.BACKOFF else None,
        deadline_at=_timestamp(job.due_at) if job.state is not JobState.BACKOFF else None,
        project=spec.project,
        submitted_by=spec.submitted_by,
        tags=job.tags,
        note=job.note,
    )


def without_cancelled(serialized: bytes) -> bytes:
    """Replace the status `cancelled` by `failure`, for clients that do not know it.

    The message stays the same.
    """
    status = pb.GetTrainingStatusResponse.FromString(serialized)
    if status.status == pb.cancelled:
        status.status = pb.failure
    for move in status.moves:
        if move.status == pb.cancelled:
            move.status = pb.failure
    return status.SerializeToString()


def _message(view: JobView) -> str:
    job = view.job
    if job.ending is not None and not job.state.is_terminal:
        if job.ending.state is JobState.BACKOFF:
            return f"Attempt {_of_attempts(job)} failed, and its group is being stopped. {_why(job)}"
        return f"Ending as {job.ending.state}: the group is being stopped."
    match job.state:
        case JobState.QUEUED:
            return f"Queueing, there are {view.position} training jobs waiting before this."
        case JobState.BACKOFF:
            return f"Attempt {_of_attempts(job)} failed; the next one follows after a pause. {_why(job)}"
        case JobState.LAUNCHING:
            return f"Launching {_instances(job)}.{_waiting(job)}"
        case JobState.RUNNING:
            return f"Training on {_instances(job)}.{_waiting(job)}"
        case JobState.SUCCEEDED:
            return f"Training succeeded{_where_the_model_is(job)}."
        case JobState.CANCELLED:
            return "Cancelled on request."
        case JobState.FAILED:
            if not job.diagnosis:
                return "Training failed."
            tries = f" Given up after {job.attempt} attempts." if job.attempt > 1 else ""
            return f"{_what_happened(job.diagnosis)} {job.diagnosis.resolution}{tries}"


def _where_the_model_is(job: Job) -> str:
    match job.has_model:
        case True:
            return f"; the model is at {job.model_uri}"
        case False:
            where = f"{job.model_uri} (MODEL_URI of the master)"
            return f", but it has written no model: there is no file at {where}"
        case None:
            return f"; its model, if it has written one, is at {job.model_uri}"


def _why(job: Job) -> str:
    return _what_happened(job.last_failure) if job.last_failure else ""


def _what_happened(why: Diagnosis) -> str:
    """The summary and the cause. If that is unknown, the last line of the evidence, which often names it."""
    if why.cause:
        return f'{why.summary} Cause: "{why.cause}".'
    last = line_of_cause("\n".join(line for line in why.detail.splitlines() if not is_report(line.strip())))
    if not last or last in why.summary:
        return why.summary
    shortened = last if len(last) <= _LONGEST_LAST_LINE else f"{last[:_LONGEST_LAST_LINE]} …"
    return f'{why.summary} Last line: "{printable(without_secrets(shortened))}".'


def _of_attempts(job: Job) -> str:
    return f"{job.attempt} of {job.spec.retry.max_attempts}"


def _waiting(job: Job) -> str:
    """The reason why the job is waiting, or why its first waiting rank is."""
    if job.waits_for:
        return f" It waits: {job.waits_for}."
    return next((f" Rank {rank.rank}: {rank.note}." for rank in job.ranks if rank.note), "")


def _instances(job: Job) -> str:
    count = job.spec.instances
    return f"{count} instance{'s' if count > 1 else ''}, attempt {job.attempt}"


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
    """Where the ranks stand that report it. Of several processes, the one with the fewest steps counts."""
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
            heard_at=_timestamp(pace.heard_at),
            step_seconds=pace.step_seconds,
            waiting_seconds=pace.waiting_seconds,
            slowness=pace.slowness,
            slow_since=_timestamp(pace.slow_since),
        )
        for rank, pace in paces.items()
    }


def _progress(progress: Progress | None, *, goes_on: bool) -> pb.Progress | None:
    """The progress message. It has the speed only if the job still `goes_on`."""
    if progress is None:
        return None
    return pb.Progress(
        step=progress.step,
        total_steps=progress.total_steps,
        epoch=progress.epoch,
        total_epochs=progress.total_epochs,
        metrics=progress.metrics,
        reported_at=_timestamp(progress.reported_at),
        steps_per_second=progress.speed if goes_on else 0.0,
        seconds_left=progress.seconds_left if goes_on else None,
        nonfinite=[
            pb.NonfiniteMetric(
                metric=each.metric,
                value=each.value,
                step=each.step,
                at=_timestamp(each.at),
                rank=each.rank,
            )
            for each in progress.nonfinite
        ],
    )


def series_of(job_id: int, series: MetricSeries) -> pb.MetricSeries:
    """The message with a series of a metric."""
    points = (
        pb.MetricPoint(step=p.step, value=p.value, at=_timestamp(p.at), attempt=p.attempt)
        for p in series.points
    )
    return pb.MetricSeries(job_id=job_id, name=series.name, points=points)


def made_by(job: Job, artifacts: Iterable[tuple[Artifact, bool]]) -> pb.GetTrainingArtifactsResponse:
    """The message with the artifacts and the provenance of the model.

    Each artifact says whether it is `fetchable`.
    """
    return pb.GetTrainingArtifactsResponse(
        job_id=job.id,
        artifacts=[
            pb.Artifact(
                name=made.name,
                uri=made.uri,
                kind=made.kind,
                size=made.size,
                sha256=made.sha256,
                fetchable=fetchable,
            )
            for made, fetchable in artifacts
        ],
        provenance=pb.Provenance(
            request=_request_of(job),
            program=job.program,
            code_version=job.spec.code_version,
            data_uri=job.spec.data_uri,
        ),
    )


def _request_of(job: Job) -> pb.TrainRequest:
    """A request for the same job that does not depend on later defaults."""
    spec = job.spec
    retry, deadlines = spec.retry, spec.deadlines
    return pb.TrainRequest(
        metadata=pb.TrainingJobMetadata(
            algorithm="" if spec.program else spec.algorithm,
            dataset_id=spec.dataset_id,
            name=spec.name,
            train_data_version_hash=spec.dataset_version,
            parameters={**spec.environment, **spec.parameters},
            output_model_name=spec.model_name,
        ),
        pod_options=_pod_options(spec.pod_options),
        retry_policy=pb.RetryPolicy(
            max_attempts=retry.max_attempts,
            backoff=_duration(retry.backoff),
            max_backoff=_duration(retry.max_backoff),
            retry_on=retry.retry_on,
        ),
        deadlines=pb.Deadlines(
            queue=_duration(deadlines.queue),
            start=_duration(deadlines.start),
            run=_duration(deadlines.run),
            progress=_duration(deadlines.progress),
        ),
        program=_program(spec),
        tags=job.tags,
        number_policy=pb.NumberPolicy(on_nonfinite=spec.numbers.on_nonfinite, metrics=spec.numbers.metrics),
    )


def _program(spec: JobSpec) -> pb.Program | None:
    if spec.program is None:
        return None
    return pb.Program(
        tree=spec.program.tree,
        command=spec.group.trainers.command,
        framework=spec.group.framework,
        environment=spec.program.environment,
        version=spec.code_version,
        requirements=spec.program.requirements,
        python_environment=spec.program.python_environment,
        changes=_changes(spec.program.changes) if spec.program.changes else None,
    )


def _changes(changes: ProgramChanges) -> pb.ProgramChanges:
    return pb.ProgramChanges(tree=changes.tree, added=changes.added, removed=changes.removed)


def _duration(span: timedelta | None) -> Duration:
    """The message of a duration. None (no deadline) is 0."""
    duration = Duration()
    duration.FromTimedelta(span or timedelta(0))
    return duration


def _moment(field: str, timestamp: Timestamp) -> datetime:
    try:
        return timestamp.ToDatetime(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidField(
            field,
            f"{timestamp.seconds} s, {timestamp.nanos} ns is not allowed; send a time from year 1 to 9999",
        ) from error


def _timestamp(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    return Timestamp(seconds=int(moment.timestamp()), nanos=moment.microsecond * 1000)


def _pod_options(sent: InstanceOptions) -> pb.PodOptions | None:
    values = _SENT.dump_python(sent, mode="json", exclude_defaults=True)
    return ParseDict(values, pb.PodOptions()) if values else None
