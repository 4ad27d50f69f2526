"""The folder of a sweep: its settings and its events.

    sweep.json      the settings; written atomically
    trials.jsonl    one event per line; an incomplete last line is dropped

A program that adds events holds a lock on the folder, so only one program runs a sweep. The lock ends with
the program.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, ValidationError

from training_service.client.errors import FailedPrecondition, InvalidRequest, NotFound
from training_service.client.sweeps.events import EVENT, Event
from training_service.client.sweeps.history import history_of
from training_service.client.sweeps.settings import Sweep

_SETTINGS, _EVENTS = "sweep.json", "trials.jsonl"


class Record(BaseModel):
    """The constant properties of a sweep."""

    model_config = ConfigDict(frozen=True)
    id: str
    address: str
    """The address of the service."""
    project: str | None = None
    """The project of the jobs; empty: the caller's default project.

    None: an earlier version of the client created the sweep.
    """
    settings: Sweep

    def job_name(self, trial: int) -> str:
        """Return the unique name of a trial's job, by which the job can be found."""
        return f"{self.settings.name}-{self.id[:8]}-{trial}"

    def request_key(self, trial: int) -> str:
        """Return the request key of a trial, which makes repeated submissions harmless."""
        return f"sweep-{self.id}-{trial}"


class Journal:
    """The events of a sweep on disk, to which events can be appended."""

    def __init__(self, folder: Path, record: Record) -> None:
        self.record = record
        self._path = folder / _EVENTS
        self.events = _events(self._path)

    def append(self, event: Event) -> None:
        """Append an event. When this returns, the event is on disk."""
        with self._path.open("ab") as file:
            file.write(EVENT.dump_json(event) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def create(folder: Path, settings: Sweep, address: str, project: str = "") -> None:
    """Create the folder of a new sweep.

    Raises FailedPrecondition if the folder contains a sweep, or if another program runs a sweep in it. But a
    sweep without jobs is replaced if the service has refused some of its trials.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if (folder / _SETTINGS).exists() and not history_of(read(folder)[1]).was_refused:
            raise FailedPrecondition(
                f"{folder} already contains a sweep: resume it with --resume, or give another --folder"
            )
        record = Record(id=uuid4().hex, address=address, project=project, settings=settings)
        draft = folder / f"{_SETTINGS}.draft"
        with draft.open("w") as file:
            file.write(record.model_dump_json(indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        (folder / _EVENTS).write_bytes(b"")  # before the rename, so that no old event belongs to new settings
        draft.rename(folder / _SETTINGS)
        _sync(folder)


def read(folder: Path) -> tuple[Record, list[Event]]:
    """Return the `Record` and the events of the sweep in the folder, even while a program runs the sweep.

    Raises NotFound if there is no sweep, and InvalidRequest if a file is damaged.
    """
    return _record(folder), _events(folder / _EVENTS)


@contextmanager
def opened(folder: Path) -> Iterator[Journal]:
    """Open the sweep in the folder to run it.

    Raises NotFound if there is no sweep, FailedPrecondition if another program runs it, and InvalidRequest if
    a file is damaged.
    """
    record = _record(folder)
    with _locked(folder):
        _drop_incomplete_line(folder / _EVENTS)
        yield Journal(folder, record)


def _record(folder: Path) -> Record:
    try:
        return Record.model_validate_json((folder / _SETTINGS).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"there is no sweep in {folder}") from error
    except ValidationError as error:
        raise InvalidRequest(f"{folder / _SETTINGS} is damaged or from another version") from error


def _events(path: Path) -> list[Event]:
    lines = path.read_bytes().split(b"\n")[:-1]
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(EVENT.validate_json(line))
        except ValidationError as error:
            raise InvalidRequest(f"line {number} of {path} is damaged or from another version") from error
    return found


def _drop_incomplete_line(path: Path) -> None:
    complete = path.read_bytes().rfind(b"\n") + 1
    os.truncate(path, complete)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise FailedPrecondition(
            f"another program runs the sweep in {folder}; stop it first, with Ctrl-C"
        ) from error
    finally:
        os.close(handle)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
