"""trainctl plot --timeline."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import typer

from training_service.client.cli.output import Form, Output
from training_service.client.cli.render import timelines
from training_service.client.sync import TrainingClient
from training_service.client.timelines import FILE, Timeline, read


@dataclass(frozen=True)
class _Entry:
    """The timeline of a job, as a result of the command."""

    job: int
    timeline: Timeline

    def as_json(self) -> str:
        return self.timeline.as_json(self.job)


def draw(output: Output, client: TrainingClient, job: int, label: str, path: Path | None) -> None:
    """Show the timeline of a job: as an image, on the terminal, as lines, or as JSON.

    Raises BadParameter if the job has no timeline or the image cannot be drawn, and ServerError if the
    timeline's file is invalid.
    """
    if not any(made.name == FILE and made.fetchable for made in client.artifacts(job).artifacts):
        raise typer.BadParameter(
            f"job {job} has no {FILE}: an algorithm publishes it with its model if it measures the passes of "
            "a pipeline (see docs/timelines.md)",
            param_hint="--timeline",
        )
    timeline = read(client.fetch(job, FILE), f"{FILE} of job {job}")
    if path is not None:
        timelines.save(timeline, label, path)
        output.note(f"wrote {path}")
        output.note(timelines.summary(timeline))
    elif output.form is Form.TERMINAL:
        output.pass_through(timelines.drawn(timeline, label, shutil.get_terminal_size().columns) + "\n")
    elif output.form is Form.JSON:
        output.show(_Entry(job, timeline), _Entry.as_json, _Entry.as_json)
    else:
        for box in timeline.boxes:
            output.pass_through(timelines.line(job, box) + "\n")
        output.note(timelines.summary(timeline))
