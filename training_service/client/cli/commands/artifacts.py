"""trainctl artifacts and trainctl fetch."""

import hashlib
import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from training_service._generated.training_service_pb2 import Artifact, GetTrainingArtifactsResponse
from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.output import Form
from training_service.client.cli.render import lines, panels, words
from training_service.client.cli.session import session_of
from training_service.client.errors import ServerError
from training_service.client.sync import TrainingClient


@dataclass(frozen=True)
class Fetched:
    """A downloaded file."""

    job_id: int
    name: str
    path: str
    size: int
    """In bytes."""
    sha256: str

    def as_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))


def artifacts(context: typer.Context, job: Job) -> None:
    """List the artifacts of a job and their origin.

    In a pipe, each artifact is one line: name, kind, size in bytes, SHA-256 and URI, separated by tabs.
    """
    session = session_of(context)
    with session.client() as client:
        made = client.artifacts(job)
    session.output.show(made, lines.artifacts, panels.artifacts, lines.artifact_names)


def fetch(
    context: typer.Context,
    job: Job,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="The artifacts to download; by default all."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", "-o", metavar="FOLDER", help="The folder to write to; by default job-JOB."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Download artifacts of a job, such as its model.

    With --json, each downloaded file is printed as an object: job_id, name, path, size, sha256.
    """
    session = session_of(context)
    folder = to or Path(f"job-{job}")
    with session.client() as client:
        wanted = _wanted(client.artifacts(job), names or [])
        targets = {made.name: _target(folder, made.name, force=force) for made in wanted}
        with _bar(shown=session.output.form is Form.TERMINAL) as bar:
            for made in wanted:
                fetched = _fetched(client, job, made, targets[made.name], bar)
                if session.output.form is Form.JSON:
                    session.output.show(fetched, Fetched.as_json, Fetched.as_json)
    session.output.note(f"fetched {words.count(len(wanted), 'file')} to {folder}")


def _wanted(made: GetTrainingArtifactsResponse, names: list[str]) -> list[Artifact]:
    there = {artifact.name: artifact for artifact in made.artifacts if artifact.fetchable}
    for name in names:
        if name not in there:
            known = ", ".join(map(words.printable, there)) or "none"
            raise typer.BadParameter(f"job {made.job_id} has no file {name!r}. Its files: {known}")
    if not there:
        raise typer.BadParameter(f"job {made.job_id} has no files (yet)")
    return [there[name] for name in names] or list(there.values())


def _target(folder: Path, name: str, *, force: bool) -> Path:
    """Return the path of the file in the folder.

    Raises ServerError for a name that leaves the folder. Raises BadParameter if the file exists and `force`
    is false.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ServerError(f"the service sent a file name outside the folder: {words.printable(name)}")
    target = folder / path
    # An error here, for example for a name that is too long, is raised again when the file is written.
    with suppress(OSError):
        if target.exists() and not force:
            raise typer.BadParameter(f"{target} exists; --force replaces it")
    return target


def _fetched(client: TrainingClient, job: int, made: Artifact, target: Path, bar: Progress) -> Fetched:
    try:
        return _download(client, job, made, target, bar)
    except OSError as error:
        raise typer.BadParameter(
            f"{words.printable(str(target))} cannot be written: {error.strerror}; "
            "give another folder with --to"
        ) from error


def _download(client: TrainingClient, job: int, made: Artifact, target: Path, bar: Progress) -> Fetched:
    """Download an artifact to the file `target`. The file gets this name only when it is complete.

    Raises ServerError if the SHA-256 of the content is not that of the artifact.
    """
    task = bar.add_task(words.printable(made.name), total=made.size or None)
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    draft = target.with_name(f".{os.getpid()}.part")  # a suffix could make the target's name too long
    try:
        with draft.open("wb") as file:
            for piece in client.fetch(job, made.name):
                file.write(piece)
                digest.update(piece)
                bar.advance(task, len(piece))
        if made.sha256 and digest.hexdigest() != made.sha256:
            raise ServerError(
                f"{words.printable(made.name)} is damaged: its SHA-256 differs from the artifact's"
            )
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return Fetched(job, made.name, str(target), target.stat().st_size, digest.hexdigest())


def _bar(*, shown: bool) -> Progress:
    """Return progress bars on standard error.

    They appear only if `shown` is true and standard error is a terminal.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), disable=not (shown and sys.stderr.isatty()))
