"""Plain text for pipes and files: stable, and not cut to the width of a terminal."""

from datetime import datetime

from training_service._generated.training_service_pb2 import (
    Artifact,
    GetTrainingArtifactsResponse,
    GetTrainingStatusResponse,
    MetricSeries,
)
from training_service.client.cli.render import facts, words
from training_service.client.watching import goes_on


def row(status: GetTrainingStatusResponse) -> str:
    """Return the line of a job in a list.

    The fields are id, status, algorithm, name, instances, submission time, project, submitter and tags,
    separated by tabs. New fields will be added at the end.
    """
    job = status.metadata
    return "\t".join(
        (
            str(status.job_id),
            words.status_word(status.status),
            words.printable(job.algorithm),
            words.printable(job.name),
            str(status.instances),
            words.moment(status.submitted_at) if status.HasField("submitted_at") else "",
            words.printable(status.project),
            words.printable(status.submitted_by),
            words.tags(status.tags),
        )
    )


def situation(status: GetTrainingStatusResponse, now: datetime) -> str:
    """Return the present situation of a job, as `label: value` lines.

    Continuation lines are indented. Times are in UTC.
    """
    labelled = [*_named(status), *facts.situation(status, now), *_times(status)]
    if status.HasField("diagnosis"):
        labelled += facts.explanation(status.diagnosis)
    return "\n".join(_labelled(*fact) for fact in labelled)


def description(status: GetTrainingStatusResponse) -> str:
    """Return the request as `label: value` lines, then one line for every change of the job's state."""
    labelled = [*_named(status), *facts.request(status), *_times(status)]
    changes = "\n".join(f"{words.moment(at)} {change}" for at, change in facts.history(status))
    return "\n".join(_labelled(*fact) for fact in [*labelled, ("History", changes)])


def _named(status: GetTrainingStatusResponse) -> list[facts.Fact]:
    job = ("Job", str(status.job_id))
    return [job, ("Status", words.status_word(status.status)), *facts.identity(status)]


def _times(status: GetTrainingStatusResponse) -> list[facts.Fact]:
    return [(label, words.moment(at)) for label, at in facts.times(status)]


def update(status: GetTrainingStatusResponse) -> str:
    """Return the state of a followed job in one line and, if the job has failed, the diagnosis below it."""
    line = f"job {status.job_id}: {', '.join(facts.standing(status))}"
    if goes_on(status) or not status.HasField("diagnosis"):
        return line
    return "\n".join([line, *(f"  {_labelled(*fact)}" for fact in facts.explanation(status.diagnosis))])


def series(found: MetricSeries) -> str:
    """Return the points of a metric, one per line: job id, metric, step and value, separated by tabs."""
    name = words.printable(found.name)
    return "\n".join(f"{found.job_id}\t{name}\t{point.step}\t{point.value!r}" for point in found.points)


def artifacts(made: GetTrainingArtifactsResponse) -> str:
    """Return all artifacts of a job, one per line."""
    return "\n".join(map(artifact, made.artifacts))


def artifact_names(made: GetTrainingArtifactsResponse) -> str:
    """Return the names of all artifacts of a job, one per line."""
    return "\n".join(words.printable(artifact.name) for artifact in made.artifacts)


def artifact(made: Artifact) -> str:
    """Return one artifact: name, kind, size in bytes, SHA-256 and URI, separated by tabs."""
    texts = (made.name, made.kind, str(made.size), made.sha256, made.uri)
    return "\t".join(words.printable(text) for text in texts)


def _labelled(label: str, value: str) -> str:
    return f"{label.lower()}: " + value.replace("\n", "\n    ")
