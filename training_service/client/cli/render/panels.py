"""The same for terminals: tables, colours and the live picture of a job."""

from collections.abc import Iterable
from datetime import datetime

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from training_service._generated.training_service_pb2 import GetTrainingStatusResponse, TrainingStatus
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
    """A list of jobs. Texts are cut to the width of the terminal, the job ids never."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("JOB", justify="right", no_wrap=True, min_width=3)
    table.add_column("STATUS", no_wrap=True, min_width=9)
    table.add_column("ALGORITHM", no_wrap=True, overflow="ellipsis")
    table.add_column("NAME", no_wrap=True, overflow="ellipsis")
    table.add_column("INST", justify="right", no_wrap=True)
    table.add_column("WHERE IT STANDS", no_wrap=True, overflow="ellipsis")
    table.add_column("SUBMITTED", no_wrap=True)
    table.add_column("TOOK", justify="right", no_wrap=True)
    for status in statuses:
        table.add_row(
            str(status.job_id),
            _word(status),
            Text(words.printable(status.metadata.algorithm)),
            Text(words.printable(status.metadata.name)),
            str(status.instances or ""),
            Text(_remark(status)),
            _ago(status, now),
            _took(status, now),
        )
    return table


def description(status: GetTrainingStatusResponse, now: datetime) -> RenderableType:
    """All about one job."""
    parts: list[RenderableType] = [
        Text.assemble((f"Job {status.job_id}", "bold"), "  ", _word(status)),
        _grid([*facts.identity(status), *facts.situation(status), *facts.times(status, now)]),
    ]
    if status.HasField("progress"):
        parts.append(Padding(_bar(status), (1, 0, 0, 2)))
    return Group(*parts, *_explanation(status))


def live(status: GetTrainingStatusResponse, now: datetime) -> RenderableType:
    """A followed job in a few lines, drawn again and again; the last picture stays."""
    job = status.metadata
    took = facts.time_taken(status, now)
    title = Text.assemble(
        (f"Job {status.job_id}", "bold"),
        *(f"  {words.printable(text)}" for text in (job.algorithm, job.name) if text),
        "  ",
        _word(status),
        f"  {words.duration(took)}" if took is not None else "",
    )
    parts: list[RenderableType] = [title]
    if status.HasField("progress"):
        parts.append(Padding(_bar(status), (0, 0, 0, 2)))
    parts.append(_grid(facts.situation(status)))
    if status.status == TrainingStatus.succeed and status.model_uri:
        parts.append(_grid([("Model URI", words.printable(status.model_uri))]))
    return Group(*parts, *_explanation(status))


def _word(status: GetTrainingStatusResponse) -> Text:
    return Text(words.status_word(status.status), style=_STYLES.get(status.status, ""))


def _remark(status: GetTrainingStatusResponse) -> str:
    """The little that a list has room for."""
    if status.HasField("diagnosis"):
        return words.printable(status.diagnosis.summary)
    if status.status == TrainingStatus.queuing:
        return words.queue_position(status.positionInQueue)
    return words.steps(status.progress)


def _ago(status: GetTrainingStatusResponse, now: datetime) -> str:
    if not status.HasField("submitted_at"):
        return ""
    return f"{words.duration(words.seconds_between(status.submitted_at, now))} ago"


def _took(status: GetTrainingStatusResponse, now: datetime) -> str:
    took = facts.time_taken(status, now)
    return "" if took is None else words.duration(took)


def _bar(status: GetTrainingStatusResponse) -> RenderableType:
    """A bar as far as the progress is known; one that only pulses while no total is."""
    done = words.fraction_done(status.progress)
    return ProgressBar(
        total=1.0 if done is not None else None,
        completed=done or 0.0,
        width=60,
        pulse=done is None and goes_on(status),
    )


def _grid(labelled: Iterable[facts.Fact]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in labelled:
        grid.add_row(label, Text(value))
    return Padding(grid, (0, 0, 0, 2))


def _explanation(status: GetTrainingStatusResponse) -> Iterable[RenderableType]:
    if status.HasField("diagnosis"):
        yield Padding(_grid(facts.explanation(status.diagnosis)), (1, 0, 0, 0))
