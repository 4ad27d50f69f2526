"""The same for terminals: tables, colours and the live picture of a job."""

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


def jobs_table(statuses: Iterable[GetTrainingStatusResponse], now: datetime) -> RenderableType:
    """A list of jobs as wide as the terminal; names are cut to what the numbers leave."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=True)
    table.add_column("JOB", justify="right", no_wrap=True)
    table.add_column("STATUS", no_wrap=True)
    table.add_column("ALGORITHM", no_wrap=True, ratio=3)
    table.add_column("NAME", no_wrap=True, ratio=3)
    table.add_column("INST", justify="right", no_wrap=True)
    table.add_column("WHERE IT STANDS", no_wrap=True, ratio=4)
    table.add_column("AGE", justify="right", no_wrap=True)
    table.add_column("RAN", justify="right", no_wrap=True)
    for status in statuses:
        table.add_row(
            str(status.job_id),
            _word(status),
            Text(words.printable(status.metadata.algorithm)),
            Text(words.printable(status.metadata.name)),
            str(status.instances or ""),
            Text(_remark(status)),
            _age(status.submitted_at, now) if status.HasField("submitted_at") else "",
            facts.run_time(status, now),
        )
    return table


def description(status: GetTrainingStatusResponse, now: datetime) -> RenderableType:
    """All about one job."""
    parts: list[RenderableType] = [
        Text.assemble((f"Job {status.job_id}", "bold"), "  ", _word(status)),
        *_bar(status),
        _grid([*facts.identity(status), *facts.situation(status), *_times(status, now)]),
    ]
    return Group(*parts, *_explanation(status))


def story(status: GetTrainingStatusResponse, now: datetime) -> RenderableType:
    """All about one job, and then its story."""
    return Group(description(status, now), *_story(status))


def live(status: GetTrainingStatusResponse, now: datetime) -> RenderableType:
    """A followed job in a few lines, drawn again and again; the last picture stays."""
    job = status.metadata
    title = Text("  ").join(
        [
            Text(f"Job {status.job_id}", style="bold"),
            *(Text(words.printable(text)) for text in (job.algorithm, job.name) if text),
            _word(status),
            Text(facts.run_time(status, now)),
        ]
    )
    situation = list(facts.situation(status))
    if status.status == TrainingStatus.succeed and status.model_uri and facts.may_have_model(status):
        situation.append(("Model URI", words.printable(status.model_uri)))
    return Group(title, *_bar(status), _grid(situation), *_explanation(status))


def artifacts(made: GetTrainingArtifactsResponse) -> RenderableType:
    """What a job has made, and what it was made from."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("NAME", no_wrap=True)
    table.add_column("KIND")
    table.add_column("SIZE", justify="right", no_wrap=True)
    table.add_column("WHERE", overflow="fold")
    for artifact in made.artifacts:
        texts = (artifact.name, artifact.kind, words.size(artifact.size), artifact.uri)
        table.add_row(*(Text(words.printable(text)) for text in texts))
    origin = Text("  Made from", style="bold")
    return Group(table, Padding(Group(origin, _grid(facts.provenance(made.provenance))), (1, 0, 0, 0)))


def _word(status: GetTrainingStatusResponse) -> Text:
    return Text(words.status_word(status.status), style=_STYLES.get(status.status, ""))


def _remark(status: GetTrainingStatusResponse) -> str:
    """The little that a list has room for."""
    if status.HasField("diagnosis"):
        return words.printable(status.diagnosis.summary)
    if status.HasField("next_attempt_at"):
        return f"attempt {status.attempt} failed, the next follows"
    if status.status == TrainingStatus.queuing:
        return words.queue_position(status.positionInQueue)
    return words.steps(status.progress)


def _age(at: Timestamp, now: datetime) -> str:
    return words.duration(words.seconds_between(at, now))


def _times(status: GetTrainingStatusResponse, now: datetime) -> Iterable[facts.Fact]:
    for label, at in facts.times(status):
        yield label, f"{words.local_moment(at)} ({words.distance(at, now)})"
    if ran := facts.run_time(status, now):
        yield "Ran" if status.HasField("finished_at") else "Running for", ran


def _bar(status: GetTrainingStatusResponse) -> Iterable[RenderableType]:
    """A bar as far as the progress is known; one that only pulses while no total is."""
    if not status.HasField("progress"):
        return
    done = words.fraction_done(status.progress)
    if done is not None or goes_on(status):
        bar = ProgressBar(total=None if done is None else 1.0, completed=done or 0.0, width=60)
        yield Padding(bar, (0, 0, 0, 2))


def _grid(labelled: Iterable[facts.Fact]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    # As wide as the longest label anywhere, so that grids below each other align.
    grid.add_column(style="dim", no_wrap=True, min_width=len("What happened"))
    grid.add_column(overflow="fold")
    for label, value in labelled:
        grid.add_row(label, Text(value))
    return Padding(grid, (0, 0, 0, 2))


def _story(status: GetTrainingStatusResponse) -> Iterable[RenderableType]:
    story = [(words.local_moment(at), what) for at, what in facts.story(status)]
    if story:
        yield Padding(Group(Text("  Story", style="bold"), _grid(story)), (1, 0, 0, 0))


def _explanation(status: GetTrainingStatusResponse) -> Iterable[RenderableType]:
    if status.HasField("diagnosis"):
        yield Padding(_grid(facts.explanation(status.diagnosis)), (1, 0, 0, 0))
