"""Records: JSON files about ranks and groups. Training code can write them, too: they are hostile input."""

import logging
import re
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from job_tracker.common import local_faults
from job_tracker.common.validation import explain
from job_tracker.files.untrusted import Place

log = logging.getLogger(__name__)

MAX_RANKS = 4096
"""The largest number of ranks of a group on one machine. Records with more ranks are refused."""
MAX_RESTARTS = 1_000_000
"""A number of restarts that no rank can reach. A higher number in a file counts as 0."""
_MAX_BYTES = 1 << 20
_MAX_KILLS = 1 << 62
_ROLE = r"^[a-z][a-z0-9-]{0,31}$"

_Pid = Annotated[int, Field(gt=0, lt=1 << 22)]  # proc(5): the largest pid_max
_Role = Annotated[str, Field(pattern=_ROLE)]  # becomes part of a folder's name
_Port = Annotated[int, Field(ge=0, lt=1 << 16)]


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class GroupRecord(_Record):
    """The launched group: the role of each rank, and either a port for each rank or only the master's
    port."""

    name: str
    job_id: int = Field(gt=0)
    attempt: int = Field(gt=0)
    home: str = ""
    roles: tuple[_Role, ...] = Field(min_length=1, max_length=MAX_RANKS)
    ports: tuple[_Port, ...] = Field(max_length=MAX_RANKS)


class KeepRecord(_Record):
    """The time until which a stopped group keeps its files, in seconds since 1970."""

    until: float


class ProcessRecord(_Record):
    """The pids of a rank's supervisor and of the rank's first process. See supervisor.py."""

    supervisor: _Pid
    child: _Pid


class ExecError(_Record):
    """The error that prevented the execution of the rank's command, and the file with which it occurred."""

    errno: int = Field(ge=0, lt=4096)
    file: str = Field(max_length=4096)


class ExitRecord(_Record):
    """The end of a rank's command. `code` is -N after signal N. See supervisor.py."""

    code: int = Field(ge=-64, le=255)
    stopped: bool
    oom_kills: int = Field(gt=-_MAX_KILLS, lt=_MAX_KILLS)
    error: ExecError | None = None
    at: float | None = Field(default=None, ge=0, lt=1e11)
    """The time of the end, in seconds since 1970."""


def is_role(text: str) -> bool:
    """Return whether the text is a valid name of a role."""
    return re.fullmatch(_ROLE, text) is not None


class Damaged(Exception):
    """A record exists, but its content is invalid or cannot be read."""


Record = TypeVar("Record", bound=_Record)


def read(place: Place, kind: type[Record]) -> Record | None:
    """Read a record; None if it does not exist.

    Raises OSError for a temporary fault of this machine, and Damaged if the record is unusable.
    """
    try:
        return kind.model_validate_json(place.read(_MAX_BYTES))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        # A power failure may have cut the record short. In that case, all processes have ended, too.
        raise Damaged(f"{place.path} is damaged: {explain(error, kind)}") from error
    except OSError as error:
        if local_faults.hinders_reading(error):
            raise
        raise Damaged(f"{place.path} cannot be read: {error}") from error


def read_or_none(place: Place, kind: type[Record]) -> Record | None:
    """Read a record; None if it is missing or damaged. Raises OSError for a temporary fault."""
    try:
        return read(place, kind)
    except Damaged as damaged:
        log.warning("%s", damaged)
        return None
