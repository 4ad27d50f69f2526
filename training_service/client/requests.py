"""Builds the request messages of the plain client and the asyncio client."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import ParamSpec, TypeVar
from uuid import uuid4

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from training_service._generated.training_service_pb2 import (
    AnnotateTrainingRequest,
    CancelTrainingRequest,
    Deadlines,
    DeleteTrainingRequest,
    ExplainTrainingRequest,
    FetchTrainingArtifactRequest,
    GetQueueRequest,
    GetQueueSnapshotRequest,
    GetTrainingArtifactsRequest,
    GetTrainingChangesRequest,
    GetTrainingLogsRequest,
    GetTrainingMetricsRequest,
    GetTrainingStatusRequest,
    ListTrainingJobsRequest,
    NumberPolicy,
    PodOptions,
    Program,
    ProgramChanges,
    RetryPolicy,
    TrainingJobMetadata,
    TrainingStatus,
    TrainRequest,
    WatchTrainingRequest,
)
from training_service.client.errors import InvalidRequest

INSTANCES_PARAMETER = "PARALLEL_INSTANCES"

KNOWS_CANCELLED = (("x-knows-cancelled", "1"),)
"""The metadata of a client that knows the status `cancelled`.

To clients without this metadata, the service may send `failure` instead.
"""

Metadata = tuple[tuple[str, str], ...]
Parameters = Mapping[str, str | int | float]

P = ParamSpec("P")
R = TypeVar("R")


def _validated(build: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that builds a message, so that it raises InvalidRequest for values that protobuf
    cannot encode.

    Such values are, for example, job ids above 2^31 - 1, and strings with lone surrogates.
    """

    @wraps(build)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return build(*args, **kwargs)
        except (TypeError, ValueError) as error:
            raise InvalidRequest(str(error)) from error

    return guarded


def encoded(build: Callable[[], R]) -> R:
    """Return the message that `build` makes.

    Raises InvalidRequest for a value that protobuf cannot encode.
    """
    return _validated(build)()


@_validated
def in_project(project: str) -> Metadata:
    """Return the metadata that names the project of new jobs and of lists.

    If `project` is "", which stands for the caller's default project, the metadata is empty.
    """
    if not project.isascii() or not project.isprintable():
        raise ValueError(f"project: {project!r} is not allowed: use lower-case letters, digits and -")
    return (("x-project", project),) if project else ()


def new_request_key() -> str:
    """Return a random, unique request key."""
    return str(uuid4())


@_validated
def train(
    algorithm: str,
    dataset_id: str,
    dataset_version: str,
    *,
    name: str,
    parameters: Parameters | None,
    instances: int | None,
    output_model_name: str,
    request_key: str | None,
    pod_options: PodOptions | None,
    retry_policy: RetryPolicy | None,
    deadlines: Deadlines | None,
    tags: Iterable[str] = (),
    program: Program | None = None,
    number_policy: NumberPolicy | None = None,
    queue: str = "",
    priority: str = "",
    expected: timedelta | None = None,
    flavor: str = "",
) -> TrainRequest:
    """Build the request that submits a job.

    Without a `request_key`, the request gets a new key, so sending the same message twice is harmless.
    """
    texts = {key: as_text(value) for key, value in (parameters or {}).items()}
    if instances is not None:
        if INSTANCES_PARAMETER in texts:
            raise InvalidRequest(f"give either instances or the parameter {INSTANCES_PARAMETER}, not both")
        texts[INSTANCES_PARAMETER] = str(instances)
    return TrainRequest(
        metadata=TrainingJobMetadata(
            algorithm=algorithm,
            dataset_id=dataset_id,
            train_data_version_hash=dataset_version,
            name=name,
            parameters=texts,
            output_model_name=output_model_name,
        ),
        request_key=request_key or new_request_key(),
        # Empty options are not sent: a service without pods would refuse them.
        pod_options=pod_options if pod_options and pod_options.ListFields() else None,
        retry_policy=retry_policy,
        deadlines=deadlines,
        program=program,
        tags=tags,
        number_policy=number_policy,
        queue=queue,
        priority=priority,
        expected=_duration(expected),
        flavor=flavor,
    )


@_validated
def program(
    tree: str,
    command: Sequence[str],
    *,
    framework: str,
    environment: Parameters | None,
    version: str,
    requirements: str = "",
    python_environment: str = "",
    image: str = "",
    changes: ProgramChanges | None = None,
) -> Program:
    """Build the part of a submission that describes the program."""
    check_command(command)
    texts = {key: as_text(value) for key, value in (environment or {}).items()}
    return Program(
        tree=tree,
        command=command,
        framework=framework,
        environment=texts,
        version=version,
        requirements=requirements,
        python_environment=python_environment,
        image=image,
        changes=changes,
    )


@_validated
def changed(
    request: TrainRequest,
    *,
    parameters: Parameters | None,
    name: str | None,
    dataset_id: str | None,
    dataset_version: str | None,
    request_key: str | None,
    command: Sequence[str] | None = None,
    environment: Parameters | None = None,
    deadlines: Deadlines | None = None,
) -> TrainRequest:
    """Return the request with these changes, and with `request_key` or a new key.

    Other options that are None, and deadlines that are not set, change nothing. `command` and `environment`
    are for uploaded programs only. The only parameter of an uploaded program that can be changed is
    PARALLEL_INSTANCES. Raises InvalidRequest for a change that is not allowed.
    """
    _check_changes(request, parameters or {}, has_program_changes=bool(command or environment))
    result = TrainRequest()
    result.CopyFrom(request)
    values = {"name": name, "dataset_id": dataset_id, "train_data_version_hash": dataset_version}
    given = {field: value for field, value in values.items() if value is not None}
    texts = {key: as_text(value) for key, value in (parameters or {}).items()}
    result.metadata.MergeFrom(TrainingJobMetadata(**given, parameters=texts))
    if command:
        check_command(command)
        result.program.command[:] = command
    if environment:
        result.program.environment.update({key: as_text(value) for key, value in environment.items()})
    for field, deadline in deadlines.ListFields() if deadlines else ():
        getattr(result.deadlines, field.name).CopyFrom(deadline)  # MergeFrom would lose a deadline of 0
    result.request_key = request_key or new_request_key()
    return result


def check_command(command: Sequence[str]) -> None:
    """Raise InvalidRequest if the command is one string: Python would take its letters as arguments."""
    if isinstance(command, str):
        raise InvalidRequest(
            f"command: {command!r} is one string; give a list of the program and its arguments, such as "
            f"{command.split()!r}"
        )


def _check_changes(request: TrainRequest, parameters: Parameters, *, has_program_changes: bool) -> None:
    if not request.HasField("program"):
        if has_program_changes:
            raise InvalidRequest(
                "command and environment are not allowed: the job runs a configured algorithm; change its "
                "parameters instead"
            )
        return
    if others := sorted(parameters.keys() - {INSTANCES_PARAMETER}):
        raise InvalidRequest(
            f"parameters: {others[0]!r} is not allowed: the job runs an uploaded program, whose only "
            f"parameter is {INSTANCES_PARAMETER}; change its variables or its command instead"
        )


def as_text(value: str | int | float) -> str:
    """Return a parameter's value as the string that is sent to the service."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@_validated
def status(job_id: int) -> GetTrainingStatusRequest:
    """Build a request for the status of a job."""
    return GetTrainingStatusRequest(job_id=job_id)


@_validated
def jobs(
    statuses: Iterable[TrainingStatus.ValueType],
    *,
    name_prefix: str,
    algorithm: str,
    submitted_by: str,
    all_projects: bool,
    page_size: int,
    since: datetime | None = None,
    until: datetime | None = None,
    mine: bool = False,
    tags: Iterable[str] = (),
    before_job: int = 0,
) -> ListTrainingJobsRequest:
    """Build a request for the first page of a list of jobs. Times without a time zone are local times."""
    return ListTrainingJobsRequest(
        statuses=statuses,
        name_prefix=name_prefix,
        algorithm=algorithm,
        submitted_by=submitted_by,
        all_projects=all_projects,
        page_size=page_size,
        submitted_since=None if since is None else timestamp(since),
        submitted_before=None if until is None else timestamp(until),
        mine=mine,
        tags=tags,
        before_job=before_job,
    )


def next_page(page: ListTrainingJobsRequest, token: str) -> ListTrainingJobsRequest:
    """Build a request for the page after `page`."""
    following = ListTrainingJobsRequest()
    following.CopyFrom(page)
    following.page_token = token
    return following


@_validated
def cancel(job_id: int) -> CancelTrainingRequest:
    """Build a request to cancel a job."""
    return CancelTrainingRequest(job_id=job_id)


@_validated
def annotate(
    job_id: int, *, add_tags: Iterable[str], remove_tags: Iterable[str], note: str | None
) -> AnnotateTrainingRequest:
    """Build a request to change the tags and the note of a job."""
    return AnnotateTrainingRequest(job_id=job_id, add_tags=add_tags, remove_tags=remove_tags, note=note)


@_validated
def delete(job_id: int) -> DeleteTrainingRequest:
    """Build a request to delete a job."""
    return DeleteTrainingRequest(job_id=job_id)


@_validated
def watch(job_id: int) -> WatchTrainingRequest:
    """Build a request for every status of a job until its end."""
    return WatchTrainingRequest(job_id=job_id)


@_validated
def logs(
    job_id: int,
    *,
    rank: int,
    all_ranks: bool,
    attempt: int,
    follow: bool,
    tail_lines: int | None,
    since: datetime | None,
    timestamps: bool,
    position: str,
) -> GetTrainingLogsRequest:
    """Build a request for a job's logs. `since` without a time zone is local time."""
    return GetTrainingLogsRequest(
        job_id=job_id,
        rank=rank,
        all_ranks=all_ranks,
        attempt=attempt,
        follow=follow,
        tail_lines=tail_lines,
        since=None if since is None else timestamp(since),
        timestamps=timestamps,
        position=position,
    )


@_validated
def metrics(job_id: int, names: Iterable[str]) -> GetTrainingMetricsRequest:
    """Build a request for the metrics of a job."""
    return GetTrainingMetricsRequest(job_id=job_id, names=names)


@_validated
def artifacts(job_id: int) -> GetTrainingArtifactsRequest:
    """Build a request for the artifacts of a job."""
    return GetTrainingArtifactsRequest(job_id=job_id)


@_validated
def queue(project: str, queue: str, page_size: int) -> GetQueueRequest:
    """Build the request for the first page of the queue. Raises InvalidRequest if `page_size` is below 1."""
    if page_size < 1:
        raise InvalidRequest(f"limit: {page_size} is not allowed; use at least 1")
    return GetQueueRequest(project=project, queue=queue, page_size=page_size)


@_validated
def queue_snapshot(project: str) -> GetQueueSnapshotRequest:
    """Build the request for a snapshot of the queue."""
    return GetQueueSnapshotRequest(project=project)


@_validated
def why(job_id: int) -> ExplainTrainingRequest:
    """Build a request for the reasons why a job waits."""
    return ExplainTrainingRequest(job_id=job_id)


@_validated
def fetch(job_id: int, name: str) -> FetchTrainingArtifactRequest:
    """Build a request for the content of one artifact."""
    return FetchTrainingArtifactRequest(job_id=job_id, name=name)


@_validated
def changes(job_id: int) -> GetTrainingChangesRequest:
    """Build a request for the uncommitted changes that were recorded with a job."""
    return GetTrainingChangesRequest(job_id=job_id)


def _duration(span: timedelta | None) -> Duration | None:
    if span is None:
        return None
    duration = Duration()
    duration.FromTimedelta(span)
    return duration


def timestamp(moment: datetime) -> Timestamp:
    """Convert a time to protobuf's type. A time without a time zone is local time."""
    converted = Timestamp()
    converted.FromDatetime(moment.astimezone(UTC))
    return converted
