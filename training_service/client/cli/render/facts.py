"""Labelled facts about a job, for every form of output."""

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from training_service._generated.training_service_pb2 import (
    Diagnosis,
    GetTrainingStatusResponse,
    Move,
    Program,
    Provenance,
    RankPhase,
    TrainingStatus,
)
from training_service.client.cli.render import advice, words
from training_service.client.watching import goes_on

Fact = tuple[str, str]
_SILENT_SECONDS = 600
_LATE_SECONDS = 30
_LATE_STEPS = 3
"""The next report is late if the last one is older than _LATE_SECONDS seconds, and older than the time of
_LATE_STEPS steps.
"""


def identity(status: GetTrainingStatusResponse) -> Iterator[Fact]:
    """Yield the facts that identify the job."""
    job = status.metadata
    version = f" (version {status.algorithm_version})" if status.algorithm_version else ""
    yield "Algorithm", words.printable(job.algorithm + version)
    if job.name:
        yield "Name", words.printable(job.name)
    if status.project:
        yield "Project", words.printable(status.project)
    if status.submitted_by:
        yield "Submitted by", words.printable(status.submitted_by)
    if status.tags:
        yield "Tags", words.tags(status.tags)
    if status.note:
        yield "Note", "\n".join(words.printable_lines(status.note))


def request(status: GetTrainingStatusResponse) -> Iterator[Fact]:
    """Yield the facts about the job's request."""
    job = status.metadata
    if status.HasField("program"):
        yield from _program(status.program)
        if status.program.version:
            yield "Code version", words.printable(status.program.version)
    if job.dataset_id:
        yield "Dataset", words.printable(f"{job.dataset_id} version {job.train_data_version_hash}")
    if job.parameters:
        yield "Parameters", words.assignments(job.parameters)
    if status.instances:
        yield "Instances", str(status.instances)
    if status.queue and status.queue != "default":
        yield "In queue", words.printable(status.queue)
    if status.flavor:
        yield "Flavor", words.printable(status.flavor)
    if status.HasField("expected"):
        yield "Expected", words.duration(status.expected.ToTimedelta().total_seconds())
    if status.priority:
        yield "Priority", str(status.priority)
    if job.output_model_name:
        yield "Model", words.printable(job.output_model_name)
    if status.model_uri and may_have_model(status):
        yield "Model URI", words.printable(status.model_uri)


def situation(status: GetTrainingStatusResponse, now: datetime) -> Iterator[Fact]:
    """Yield the facts about the job's present state."""
    if status.status == TrainingStatus.queuing and not status.HasField("next_attempt_at"):
        yield "Queue", words.queue_position(status.positionInQueue)
        if why := _why_it_waits(status.message):
            yield "Waits", words.printable(why)
    if status.attempt > 1 or status.HasField("next_attempt_at"):
        yield "Attempt", _attempt(status)
    # Before the next attempt, the message of the status already names the failure.
    if not status.HasField("next_attempt_at") and (why := last_failure(status)):
        yield "Last failure", why
    if status.HasField("progress"):
        late = report_age(status, now)
        if done := words.steps(status.progress):
            yield "Progress", f"{done} (last report {words.duration(late)} ago)" if late else done
        if pace := words.pace(status.progress, with_estimate=not late):
            yield "Pace", pace
        if status.progress.metrics:
            yield "Metrics", words.metrics(status.progress)
        if status.progress.nonfinite:
            yield "Bad numbers", words.nonfinite(status.progress)
    if status.ranks:
        yield "Ranks", words.ranks(status.ranks)
        if slow := words.slow_ranks(status.ranks):
            yield "Slow", slow
        if status.status == TrainingStatus.running and (much := advice.waiting(status.ranks)):
            yield "Waiting", much
    if silent := silence(status, now):
        yield "Silent", silent
    if status.ending:
        yield "Ending", words.printable(status.message) or "its processes are being stopped"
    if status.message and not _says_it_again(status):
        yield "Message", words.printable(status.message)
    if status.status == TrainingStatus.succeed and status.model_uri and may_have_model(status):
        yield "Model URI", words.printable(status.model_uri)


def report_age(status: GetTrainingStatusResponse, now: datetime) -> float:
    """Return how many seconds ago a running job last reported progress; 0 if the next report is not late."""
    if status.status != TrainingStatus.running or not status.progress.HasField("reported_at"):
        return 0.0
    speed = status.progress.steps_per_second
    expected = _LATE_STEPS / speed if speed else 0.0
    seconds = words.seconds_between(status.progress.reported_at, now)
    return seconds if seconds > max(_LATE_SECONDS, expected) else 0.0


def silence(status: GetTrainingStatusResponse, now: datetime) -> str:
    """Say for how long a running job has reported nothing; "" for less than _SILENT_SECONDS."""
    if status.status != TrainingStatus.running or status.ending or not status.HasField("started_at"):
        return ""
    heard = [status.started_at]
    if status.progress.HasField("reported_at"):
        heard.append(status.progress.reported_at)
    heard += [rank.pace.heard_at for rank in status.ranks if rank.pace.HasField("heard_at")]
    seconds = min(words.seconds_between(at, now) for at in heard)
    return f"no progress reported for {words.duration(seconds)}" if seconds >= _SILENT_SECONDS else ""


def last_failure(status: GetTrainingStatusResponse) -> str:
    """Say in one line why the last failed attempt of a job failed.

    Return "" if no attempt has failed, or if the job has ended.
    """
    failed = _last_failed(status)
    return f"attempt {failed.attempt}: {reason(failed.diagnosis)}" if failed and goes_on(status) else ""


def _last_failed(status: GetTrainingStatusResponse) -> Move | None:
    """Return the state change that queued the job again after its last failed attempt; None if there is
    none.
    """
    for move in reversed(status.moves):
        if move.status == TrainingStatus.queuing and move.HasField("diagnosis"):
            return move
    return None


def reason(diagnosis: Diagnosis) -> str:
    """Return the summary of a failure and its cause, in one line."""
    cause = f" Cause: {diagnosis.cause}" if diagnosis.cause else ""
    return words.printable(f"{diagnosis.summary}{cause}")


def _why_it_waits(message: str) -> str:
    """Return the part of a queued job's message that follows the position; "" if there is no such part."""
    return message.partition(" training jobs waiting before this. ")[2]


def _says_it_again(status: GetTrainingStatusResponse) -> bool:
    """Return whether the status's message only repeats facts that are shown anyway, such as the diagnosis."""
    if status.status == TrainingStatus.queuing:
        return not status.HasField("next_attempt_at")
    if status.status == TrainingStatus.succeed:
        return bool(status.model_uri) and may_have_model(status)
    return status.ending or status.HasField("diagnosis")


def standing(status: GetTrainingStatusResponse) -> Iterator[str]:
    """Yield the parts of one line about the job's present state."""
    yield words.status_word(status.status)
    if status.HasField("next_attempt_at"):
        failed = _last_failed(status)
        why = reason(failed.diagnosis) if failed else ""
        yield ": ".join(filter(None, (words.waits_to_retry(status.attempt), why)))
        return
    if status.attempt > 1:
        yield f"attempt {status.attempt}"
    if status.status == TrainingStatus.queuing:
        yield words.queue_position(status.positionInQueue)
    if status.status in (TrainingStatus.queuing, TrainingStatus.launch) and (why := last_failure(status)):
        yield f"last failure: {why}"
    if status.status == TrainingStatus.launch and status.ranks:
        running = sum(rank.phase == RankPhase.RANK_PHASE_RUNNING for rank in status.ranks)
        yield f"{running} of {words.count(len(status.ranks), 'instance')} running"
    if status.HasField("progress"):
        yield from filter(None, (words.steps(status.progress), words.metrics(status.progress)))
    if status.ending:
        yield "ending"
    if status.HasField("finished_at") and (ran := run_time(status, status.finished_at.ToDatetime(UTC))):
        yield f"ran {ran}"
    if status.status == TrainingStatus.succeed and status.model_uri:
        yield words.printable(f"model {status.model_uri}") if may_have_model(status) else "no model"
    if status.status == TrainingStatus.failure and not status.HasField("diagnosis"):
        yield words.printable(status.message)


def may_have_model(status: GetTrainingStatusResponse) -> bool:
    """Return whether the job may have a model: false only if the service found none at the model's URI."""
    return status.has_model or not status.HasField("has_model")


def times(status: GetTrainingStatusResponse) -> Iterator[tuple[str, Timestamp]]:
    """Yield the known times of the job, each with its label."""
    if status.HasField("submitted_at"):
        yield "Submitted", status.submitted_at
    if status.HasField("started_at"):
        yield "Started", status.started_at
    if status.HasField("finished_at"):
        yield "Finished", status.finished_at
    if status.HasField("next_attempt_at"):
        yield "Next attempt", status.next_attempt_at
    if status.HasField("deadline_at"):
        yield "Deadline", status.deadline_at


def run_time(status: GetTrainingStatusResponse, now: datetime) -> str:
    """Return the run time of the current or last attempt, or "" before its start."""
    if not status.HasField("started_at"):
        return ""
    end = status.finished_at if status.HasField("finished_at") else now
    return words.duration(words.seconds_between(status.started_at, end))


def history(status: GetTrainingStatusResponse) -> Iterator[tuple[Timestamp, str]]:
    """Yield the time and description of every change of the job's state."""
    for move in status.moves:
        yield move.at, _move(move)


def _move(move: Move) -> str:
    failed = move.HasField("diagnosis")
    why = f": {words.printable(move.diagnosis.summary)}" if failed else ""
    if move.status == TrainingStatus.queuing:
        if failed:
            return f"attempt {move.attempt} failed{why}"
        if interrupted := move.preempted or move.evicted:
            return f"queued again: {words.printable(interrupted)}"
        return "queued again" if move.attempt else "submitted"
    if failed and move.status in (TrainingStatus.launch, TrainingStatus.running):
        return f"rank {move.diagnosis.rank} restarted{why}"
    attempt = f", attempt {move.attempt}" if move.attempt > 1 else ""
    return f"{words.status_word(move.status)}{attempt}{why}"


def provenance(made_from: Provenance) -> Iterator[Fact]:
    """Yield the facts about the origin of a model."""
    job, program = made_from.request.metadata, made_from.request.program
    if job.algorithm:
        yield "Algorithm", words.printable(job.algorithm)
    if made_from.request.HasField("program"):
        yield from _program(program)
    if made_from.program:
        yield "Program", words.printable(made_from.program)
    if made_from.code_version:
        yield "Code version", words.printable(made_from.code_version)
    if job.dataset_id:
        version = f"{job.dataset_id} version {job.train_data_version_hash}"
        yield "Data", words.printable(f"{version}, {made_from.data_uri}")
    if job.parameters:
        yield "Parameters", words.assignments(job.parameters)


def _program(program: Program) -> Iterator[Fact]:
    yield "Command", words.printable(shlex.join(program.command))
    yield "Files", f"tree {words.printable(program.tree)}"
    if program.requirements:
        yield "Packages", f"those of {words.printable(program.requirements)}"
    if program.python_environment:
        yield "Python environment", words.printable(program.python_environment)
    if program.image:
        yield "Image", words.printable(program.image)
    if program.environment:
        yield "Environment", words.assignments(program.environment)
    if program.HasField("changes"):
        changes, tree = program.changes, words.printable(program.changes.tree)
        lines = f"{words.count(changes.added, 'line')} added, {changes.removed} removed"
        yield "Uncommitted changes", f"{lines} (trainctl diff shows them), tree {tree}"


def _attempt(status: GetTrainingStatusResponse) -> str:
    return f"{status.attempt} of {status.max_attempts}" if status.max_attempts else str(status.attempt)


def explanation(diagnosis: Diagnosis) -> Iterator[Fact]:
    """Yield the facts of a diagnosis: why the job failed and what to do.

    Only the detail may have several lines.
    """
    yield "What happened", words.printable(diagnosis.summary)
    if diagnosis.HasField("rank"):
        yield "Where", f"rank {diagnosis.rank}"
    if diagnosis.cause:
        yield "Cause", words.printable(diagnosis.cause)
    if diagnosis.detail:
        yield "Detail", "\n".join(words.printable_lines(diagnosis.detail))
    if diagnosis.resolution:
        yield "What to do", words.printable(diagnosis.resolution)
    if diagnosis.retryable:
        yield "Retry", "the same request may succeed if it is submitted again"
