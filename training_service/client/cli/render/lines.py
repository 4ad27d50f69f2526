"""Plain text for pipes and files: stable, greppable, never cut to a width."""

from training_service._generated.training_service_pb2 import (
    Artifact,
    GetTrainingArtifactsResponse,
    GetTrainingStatusResponse,
    MetricSeries,
)
from training_service.client.cli.render import facts, words
from training_service.client.watching import goes_on


def row(status: GetTrainingStatusResponse) -> str:
    """One job of a list, fields separated by tabs; new fields will be added at the end.

    Job id, status, algorithm, name, instances, time of submission.
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
        )
    )


def description(status: GetTrainingStatusResponse) -> str:
    """All about one job, a `label: value` a line; continued lines are indented, times are UTC."""
    labelled = [
        ("Job", str(status.job_id)),
        ("Status", words.status_word(status.status)),
        *facts.identity(status),
        *facts.situation(status),
        *((label, words.moment(at)) for label, at in facts.times(status)),
    ]
    if status.HasField("diagnosis"):
        labelled += facts.explanation(status.diagnosis)
    return "\n".join(_labelled(*fact) for fact in labelled)


def story(status: GetTrainingStatusResponse) -> str:
    """All about one job, and then its story, a move a line."""
    moves = "\n".join(f"{words.moment(at)} {what}" for at, what in facts.story(status))
    return "\n".join((description(status), _labelled("Story", moves)))


def update(status: GetTrainingStatusResponse) -> str:
    """Where a followed job stands, in one line; one that has failed tells why in some more."""
    line = f"job {status.job_id}: {', '.join(facts.standing(status))}"
    if goes_on(status) or not status.HasField("diagnosis"):
        return line
    return "\n".join([line, *(f"  {_labelled(*fact)}" for fact in facts.explanation(status.diagnosis))])


def series(found: MetricSeries) -> str:
    """The points of a metric, one a line: job id, metric, step, value; with tabs between."""
    name = words.printable(found.name)
    return "\n".join(f"{found.job_id}\t{name}\t{point.step}\t{point.value!r}" for point in found.points)


def artifacts(made: GetTrainingArtifactsResponse) -> str:
    """All artifacts of a job, one a line."""
    return "\n".join(map(artifact, made.artifacts))


def artifact(made: Artifact) -> str:
    """One artifact: name, kind, size in bytes, SHA-256, URI; with tabs between."""
    texts = (made.name, made.kind, str(made.size), made.sha256, made.uri)
    return "\t".join(words.printable(text) for text in texts)


def _labelled(label: str, value: str) -> str:
    return f"{label.lower()}: " + value.replace("\n", "\n    ")
