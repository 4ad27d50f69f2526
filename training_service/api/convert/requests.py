"""Converts a request for a job from its message, and back."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from pydantic import TypeAdapter

from job_tracker.admission.admission import JobRequest
from job_tracker.admission.programs import ProgramRequest
from job_tracker.domain.group import InstanceOptions
from job_tracker.domain.job import Job
from job_tracker.domain.job_spec import JobSpec, ProgramChanges
from job_tracker.domain.tags import Annotation
from job_tracker.frameworks.job_environment import FREE_PARAMETERS
from training_service._generated import training_service_pb2 as pb
from training_service.api.convert.times import duration_of, seconds

_SENT = TypeAdapter(InstanceOptions)


def request_of(message: pb.TrainRequest) -> JobRequest:
    """Return the job request in a message."""
    metadata = message.metadata
    return JobRequest(
        algorithm=metadata.algorithm,
        dataset_id=metadata.dataset_id,
        dataset_version=metadata.train_data_version_hash,
        name=metadata.name,
        model_name=metadata.output_model_name,
        # This is twice as fast as dict() of the message's map, which calls Python for each key.
        parameters={name: metadata.parameters[name] for name in metadata.parameters},
        request_key=message.request_key,
        # Take only the fields that were sent, to distinguish an absent field from a default value.
        pod_options=(
            MessageToDict(message.pod_options, preserving_proto_field_name=True)
            if message.HasField("pod_options")
            else {}
        ),
        retry=dict(_retry_of(message.retry_policy)) if message.HasField("retry_policy") else {},
        deadlines=(
            {field.name: seconds(duration) for field, duration in message.deadlines.ListFields()}
            if message.HasField("deadlines")
            else {}
        ),
        numbers=(
            MessageToDict(message.number_policy, preserving_proto_field_name=True)
            if message.HasField("number_policy")
            else {}
        ),
        program=_program_of(message.program) if message.HasField("program") else None,
        tags=tuple(message.tags),
        queue=message.queue,
        priority=message.priority,
        expected=seconds(message.expected) if message.HasField("expected") else None,
        flavor=message.flavor,
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
        image=message.image,
        changes=_changes_of(message.changes) if message.HasField("changes") else None,
    )


def _changes_of(message: pb.ProgramChanges) -> ProgramChanges:
    return ProgramChanges(message.tree, max(0, message.added), max(0, message.removed))


def _retry_of(message: pb.RetryPolicy) -> Iterator[tuple[str, Any]]:
    """Yield the fields of the retry policy that were sent."""
    if message.HasField("max_attempts"):
        yield "max_attempts", message.max_attempts
    if message.HasField("backoff"):
        yield "backoff", seconds(message.backoff)
    if message.HasField("max_backoff"):
        yield "max_backoff", seconds(message.max_backoff)
    if message.retry_on:
        yield "retry_on", list(message.retry_on)


def request_for(job: Job) -> pb.TrainRequest:
    """Return a request that repeats the job.

    It also has the values that the job got by default, so the new job gets them even if the defaults change.
    """
    spec = job.spec
    # FREE_PARAMETERS is left out: the service makes it again from the undeclared parameters, which are also
    # in `spec.parameters`.
    environment = {name: value for name, value in spec.environment.items() if name != FREE_PARAMETERS}
    retry, deadlines = spec.retry, spec.deadlines
    return pb.TrainRequest(
        metadata=pb.TrainingJobMetadata(
            algorithm="" if spec.program else spec.algorithm,
            dataset_id=spec.dataset_id,
            name=spec.name,
            train_data_version_hash=spec.dataset_version,
            parameters={**environment, **spec.parameters},
            output_model_name=spec.model_name,
        ),
        pod_options=_pod_options(spec.pod_options),
        retry_policy=pb.RetryPolicy(
            max_attempts=retry.max_attempts,
            backoff=duration_of(retry.backoff),
            max_backoff=duration_of(retry.max_backoff),
            retry_on=retry.retry_on,
        ),
        deadlines=pb.Deadlines(
            queue=duration_of(deadlines.queue),
            start=duration_of(deadlines.start),
            run=duration_of(deadlines.run),
            progress=duration_of(deadlines.progress),
        ),
        program=program_of(spec),
        tags=job.tags,
        queue=spec.queue,
        priority=str(spec.priority) if spec.priority else "",
        expected=duration_of(spec.expected) if spec.expected else None,
        flavor=spec.flavor,
        number_policy=pb.NumberPolicy(on_nonfinite=spec.numbers.on_nonfinite, metrics=spec.numbers.metrics),
    )


def program_of(spec: JobSpec) -> pb.Program | None:
    """Return the message of the program that was submitted; None if the job has an algorithm."""
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
        image=spec.program.image,
        changes=_changes(spec.program.changes) if spec.program.changes else None,
    )


def _changes(changes: ProgramChanges) -> pb.ProgramChanges:
    return pb.ProgramChanges(tree=changes.tree, added=changes.added, removed=changes.removed)


def _pod_options(sent: InstanceOptions) -> pb.PodOptions | None:
    values = _SENT.dump_python(sent, mode="json", exclude_defaults=True)
    return ParseDict(values, pb.PodOptions()) if values else None


def annotation_of(message: pb.AnnotateTrainingRequest) -> Annotation:
    """Return the change of tags and note that the message asks for."""
    note = message.note if message.HasField("note") else None
    return Annotation(tuple(message.add_tags), tuple(message.remove_tags), note)
