"""A sweep on the disk: its settings, and a line for each event, there before anybody acts on it.

    sweep.json      what is to be done; whole or not there
    trials.jsonl    what has happened; what a kill left of a last line is dropped

Whoever adds events holds a lock, so that no two programs run the same sweep; it goes with its holder.
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
    """What a sweep is, from its beginning to its end."""

    model_config = ConfigDict(frozen=True)
    id: str
    address: str
    """Of the service that has its jobs."""
    settings: Sweep

    def job_name(self, trial: int) -> str:
        """The name of a trial's job: of no other's, so that jobs can be found by it."""
        return f"{self.settings.name}-{self.id[:8]}-{trial}"

    def request_key(self, trial: int) -> str:
        """With it a trial has one job, however often it is submitted."""
        return f"sweep-{self.id}-{trial}"


class Journal:
    """The events of a sweep, to be added to."""

    def __init__(self, folder: Path, record: Record) -> None:
        self.record = record
        self._path = folder / _EVENTS
        self.events = _events(self._path)

    def append(self, event: Event) -> None:
        """Writes an event down; when this returns, it is on the disk."""
        with self._path.open("ab") as file:
            file.write(EVENT.dump_json(event) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def begin(folder: Path, settings: Sweep, address: str) -> None:
    """Makes the folder of a new sweep. Raises FailedPrecondition if there is one in it.

    One that came to nothing, since the service refused its settings, is replaced: it never had a job.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if (folder / _SETTINGS).exists() and not history_of(read(folder)[1]).came_to_nothing:
            raise FailedPrecondition(
                f"{folder} has a sweep already: --resume goes on with it, --folder puts a new one elsewhere"
            )
        record = Record(id=uuid4().hex, address=address, settings=settings)
        draft = folder / f"{_SETTINGS}.draft"
        with draft.open("w") as file:
            file.write(record.model_dump_json(indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        (folder / _EVENTS).write_bytes(b"")  # before the settings: the events are not of these
        draft.rename(folder / _SETTINGS)
        _sync(folder)


def read(folder: Path) -> tuple[Record, list[Event]]:
    """A sweep as it stands; it may be going on. Raises NotFound if there is none."""
    return _record(folder), _events(folder / _EVENTS)


@contextmanager
def opened(folder: Path) -> Iterator[Journal]:
    """A sweep to go on with.

    Raises NotFound if there is none, and FailedPrecondition while another program runs it.
    """
    record = _record(folder)
    with _locked(folder):
        _drop_half_a_line(folder / _EVENTS)
        yield Journal(folder, record)


def _record(folder: Path) -> Record:
    try:
        return Record.model_validate_json((folder / _SETTINGS).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"there is no sweep in {folder}") from error
    except ValidationError as error:
        raise InvalidRequest(f"{folder / _SETTINGS} is damaged, or of another version") from error


def _events(path: Path) -> list[Event]:
    lines = path.read_bytes().split(b"\n")[:-1]
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(EVENT.validate_json(line))
        except ValidationError as error:
            raise InvalidRequest(f"line {number} of {path} is damaged, or of another version") from error
    return found


def _drop_half_a_line(path: Path) -> None:
    whole = path.read_bytes().rfind(b"\n") + 1
    os.truncate(path, whole)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise FailedPrecondition(
            f"another program runs the sweep in {folder}; end that first, with Ctrl-C"
        ) from error
    finally:
        os.close(handle)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
