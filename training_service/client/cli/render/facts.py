"""What there is to say about a job, as labelled lines that every kind of output shares."""

from collections.abc import Iterator
from datetime import datetime

from training_service._generated.training_service_pb2 import (
    Diagnosis,
    GetTrainingStatusResponse,
    RankPhase,
    TrainingStatus,
)
from training_service.client.cli.render import words

Fact = tuple[str, str]


def identity(status: GetTrainingStatusResponse) -> Iterator[Fact]:
    """What was asked for."""
    job = status.metadata
    yield "Algorithm", words.printable(job.algorithm)
    if job.name:
        yield "Name", words.printable(job.name)
    yield "Dataset", words.printable(f"{job.dataset_id} version {job.train_data_version_hash}")
    if job.parameters:
        yield "Parameters", words.assignments(job.parameters)
    if status.instances:
        yield "Instances", str(status.instances)
    if job.output_model_name:
        yield "Model", words.printable(job.output_model_name)
    if status.model_uri:
        yield "Model URI", words.printable(status.model_uri)


def situation(status: GetTrainingStatusResponse) -> Iterator[Fact]:
    """What the job is doing."""
    if status.status == TrainingStatus.queuing:
        yield "Queue", words.queue_position(status.positionInQueue)
    if status.attempt > 1:
        yield "Attempt", str(status.attempt)
    if status.HasField("progress"):
        if done := words.steps(status.progress):
            yield "Progress", done
        if status.progress.metrics:
            yield "Metrics", words.metrics(status.progress)
    if status.ranks:
        yield "Ranks", words.ranks(status.ranks)
    if status.ending:
        yield "Ending", "the outcome is decided; the processes are being stopped"
    if status.message:
        yield "Message", words.printable(status.message)


def standing(status: GetTrainingStatusResponse) -> Iterator[str]:
    """Where the job stands, in a few words that make one line together."""
    yield words.status_word(status.status)
    if status.attempt > 1:
        yield f"attempt {status.attempt}"
    if status.status == TrainingStatus.queuing:
        yield words.queue_position(status.positionInQueue)
    if status.status == TrainingStatus.launch and status.ranks:
        running = sum(rank.phase == RankPhase.RANK_PHASE_RUNNING for rank in status.ranks)
        yield f"{running} of {words.count(len(status.ranks), 'instance')} running"
    if status.HasField("progress"):
        yield from filter(None, (words.steps(status.progress), words.metrics(status.progress)))
    if status.ending:
        yield "being stopped"


def times(status: GetTrainingStatusResponse, now: datetime) -> Iterator[Fact]:
    """When it happened, on the clock of this machine."""
    moments = {
        "Submitted": status.submitted_at if status.HasField("submitted_at") else None,
        "Started": status.started_at if status.HasField("started_at") else None,
        "Finished": status.finished_at if status.HasField("finished_at") else None,
    }
    for label, at in moments.items():
        if at is not None:
            yield label, f"{words.local_moment(at)} ({words.duration(words.seconds_between(at, now))} ago)"
    if (took := time_taken(status, now)) is not None:
        yield "Took", words.duration(took)


def time_taken(status: GetTrainingStatusResponse, now: datetime) -> float | None:
    """Seconds that the current attempt has run, or ran; None before it was seen running."""
    if not status.HasField("started_at"):
        return None
    return words.seconds_between(
        status.started_at, status.finished_at if status.HasField("finished_at") else now
    )


def explanation(diagnosis: Diagnosis) -> Iterator[Fact]:
    """Why a job failed and what to do about it. Only the detail has several lines."""
    where = f" (rank {diagnosis.rank})" if diagnosis.HasField("rank") else ""
    yield "What happened", words.printable(diagnosis.summary) + where
    if diagnosis.detail:
        yield "Detail", "\n".join(words.printable_lines(diagnosis.detail))
    if diagnosis.resolution:
        yield "What to do", words.printable(diagnosis.resolution)
    if diagnosis.retryable:
        yield "Retry", "the same request may succeed if it is tried again"
