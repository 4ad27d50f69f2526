"""Terminal output: tables, colours and the live view of a job."""

from collections.abc import Iterable
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from training_service._generated.training_service_pb2 import (
    GetTrainingArtifactsResponse,
    GetTrainingStatusResponse,
    TrainingStatus,
)
from training_service.client.cli.render import facts, words
from training_service.client.watching import goes_on

_STYLES: dict[TrainingStatus.ValueType, str] = {
    TrainingStatus.queuing: "yellow",
    TrainingStatus.launch: "cyan",
    TrainingStatus.running: "blue",
    TrainingStatus.succeed: "green",
    TrainingStatus.failure: "bold red",
    TrainingStatus.cancelled: "magenta",
}


def jobs_table(
    statuses: Iterable[GetTrainingStatusResponse], now: datetime, *, with_projects: bool = False
) -> RenderableType:
    """Return a table of jobs as wide as the terminal. Words are truncated, numbers are not."""
    statuses = list(statuses)
    with_tags = any(status.tags for status in statuses)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=True)
    table.add_column("JOB", justify="right", no_wrap=True)
    table.add_column("STATUS", no_wrap=True)
    if with_projects:
        table.add_column("PROJECT", no_wrap=True, ratio=2)
    table.add_column("ALGORITHM", no_wrap=True, ratio=3)
    table.add_column("NAME", no_wrap=True, ratio=3)
    if with_tags:
        table.add_column("TAGS", no_wrap=True, ratio=2)
    table.add_column("INST", justify="right", no_wrap=True)
    table.add_column("DETAIL", no_wrap=True, ratio=4)
    table.add_column("AGE", justify="right", no_wrap=True)
    table.add_column("RAN", justify="right", no_wrap=True)
    for status in statuses:
        table.add_row(
            str(status.job_id),
            _word(status),
            *([Text(words.printable(status.project))] if with_projects else []),
            Text(words.printable(status.metadata.algorithm)),
            Text(words.printable(status.metadata.name)),
            *([Text(words.tags(status.tags))] if with_tags else []),
            str(status.instances or ""),
            Text(_detail(status, now)),
            _age(status.submitted_at, now) if status.HasField("submitted_at") else "",
            facts.run_time(status, now),
        )
    return table


def situation(status: GetTrainingStatusResponse, now: datetime) -> RenderableType:
    """Return the present situation of a job."""
    shown = [*facts.identity(status), *facts.situation(status, now), *_times(status, now)]
    return Group(_title(status), *_bar(status), _grid(shown), *_explanation(status))


def description(status: GetTrainingStatusResponse, now: datetime) -> RenderableType:
    """Return the request and the history of a job."""
    shown = [*facts.identity(status), *facts.request(status), *_times(status, now)]
    return Group(_title(status), _grid(shown), *_history(status))


def live(status: GetTrainingStatusResponse, now: datetime) -> RenderableType:
    """Return a short view of a followed job, which is redrawn again and again."""
    job = status.metadata
    title = Text("  ").join(
        [
            Text(f"Job {status.job_id}", style="bold"),
            *(Text(words.printable(text)) for text in (job.algorithm, job.name) if text),
            _word(status),
            Text(facts.run_time(status, now)),
        ]
    )
    return Group(title, *_bar(status), _grid(facts.situation(status, now)), *_explanation(status))


def artifacts(made: GetTrainingArtifactsResponse) -> RenderableType:
    """Return a table of a job's artifacts, and their origin."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("NAME", no_wrap=True)
    table.add_column("KIND")
    table.add_column("SIZE", justify="right", no_wrap=True)
    table.add_column("URI", overflow="fold")
    for artifact in made.artifacts:
        texts = (artifact.name, artifact.kind, words.size(artifact.size), artifact.uri)
        table.add_row(*(Text(words.printable(text)) for text in texts))
    origin = Text("  Made from", style="bold")
    return Group(table, Padding(Group(origin, _grid(facts.provenance(made.provenance))), (1, 0, 0, 0)))


def facts_table(title: Text, labelled: Iterable[facts.Fact]) -> RenderableType:
    """Return the facts as a table below a title."""
    return Group(title, _grid(labelled))


def _title(status: GetTrainingStatusResponse) -> Text:
    return Text.assemble((f"Job {status.job_id}", "bold"), "  ", _word(status))


def _word(status: GetTrainingStatusResponse) -> Text:
    return Text(words.status_word(status.status), style=_STYLES.get(status.status, ""))


def _detail(status: GetTrainingStatusResponse, now: datetime) -> str:
    """Return the most important fact about a job, for its row in a list."""
    if status.HasField("diagnosis"):
        return words.printable(status.diagnosis.summary)
    if status.HasField("next_attempt_at"):
        return words.waits_to_retry(status.attempt)
    if status.status == TrainingStatus.queuing:
        return words.queue_position(status.positionInQueue)
    return ", ".join(filter(None, (words.steps(status.progress), facts.silence(status, now))))


def _age(at: Timestamp, now: datetime) -> str:
    return words.duration(words.seconds_between(at, now))


def _times(status: GetTrainingStatusResponse, now: datetime) -> Iterable[facts.Fact]:
    for label, at in facts.times(status):
        yield label, f"{words.local_moment(at)} ({words.distance(at, now)})"
    if ran := facts.run_time(status, now):
        yield "Ran" if status.HasField("finished_at") else "Running for", ran


def _bar(status: GetTrainingStatusResponse) -> Iterable[RenderableType]:
    """Yield a progress bar if the job has reported progress.

    If the total is unknown, the bar pulses, and is left out when the job has ended.
    """
    if not status.HasField("progress"):
        return
    done = words.fraction_done(status.progress)
    if done is not None or goes_on(status):
        bar = ProgressBar(total=None if done is None else 1.0, completed=done or 0.0, width=60)
        yield Padding(bar, (0, 0, 0, 2))


def _grid(labelled: Iterable[facts.Fact]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    # The column is at least as wide as the longest usual label, so that most grids align.
    grid.add_column(style="dim", no_wrap=True, min_width=len("What happened"))
    grid.add_column(overflow="fold")
    for label, value in labelled:
        grid.add_row(label, Text(value))
    return Padding(grid, (0, 0, 0, 2))


def _history(status: GetTrainingStatusResponse) -> Iterable[RenderableType]:
    history = [(words.local_moment(at), change) for at, change in facts.history(status)]
    if history:
        yield Padding(Group(Text("  History", style="bold"), _grid(history)), (1, 0, 0, 0))


def _explanation(status: GetTrainingStatusResponse) -> Iterable[RenderableType]:
    if status.HasField("diagnosis"):
        yield Padding(_grid(facts.explanation(status.diagnosis)), (1, 0, 0, 0))
