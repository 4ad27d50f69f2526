"""What is written about a rank or a group, read as hostile: training code can write these files, too."""

import logging
import re
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from job_tracker.common import local_faults
from job_tracker.common.validation import explain
from job_tracker.files.untrusted import Place

log = logging.getLogger(__name__)

MOST_RANKS = 4096
"""How many ranks a group on one machine can have, and so how many of a record are believed."""
MOST_RESTARTS = 1_000_000
"""More than any rank was ever started anew."""
_MOST_BYTES = 1 << 20
_MOST_KILLS = 1 << 62
_ROLE = r"^[a-z][a-z0-9-]{0,31}$"

_Pid = Annotated[int, Field(gt=0, lt=1 << 22)]  # proc(5): the largest pid_max
_Role = Annotated[str, Field(pattern=_ROLE)]  # which becomes part of the name of a folder
_Port = Annotated[int, Field(ge=0, lt=1 << 16)]


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class GroupRecord(_Record):
    """What was launched: the roles of its ranks, and the port of each, or of the master alone."""

    name: str
    job_id: int = Field(gt=0)
    attempt: int = Field(gt=0)
    home: str = ""
    roles: tuple[_Role, ...] = Field(min_length=1, max_length=MOST_RANKS)
    ports: tuple[_Port, ...] = Field(max_length=MOST_RANKS)


class KeepRecord(_Record):
    """Until when a stopped group stays as it is, in seconds since 1970."""

    until: float


class ProcessRecord(_Record):
    """The processes of a rank: its supervisor, and the first of the rank's own. See supervisor.py."""

    supervisor: _Pid
    child: _Pid


class ExecError(_Record):
    """Why the rank's command could not be executed, and which file it was."""

    errno: int = Field(ge=0, lt=4096)
    file: str = Field(max_length=4096)


class ExitRecord(_Record):
    """How a rank's command ended; `code` is -N after signal N. See supervisor.py."""

    code: int = Field(ge=-64, le=255)
    stopped: bool
    oom_kills: int = Field(gt=-_MOST_KILLS, lt=_MOST_KILLS)
    error: ExecError | None = None
    at: float | None = Field(default=None, ge=0, lt=1e11)
    """Seconds since 1970."""


def is_role(text: str) -> bool:
    """Whether a role can have that name."""
    return re.fullmatch(_ROLE, text) is not None


class Damaged(Exception):
    """A record is there, but is not what was written."""


Record = TypeVar("Record", bound=_Record)


def read(place: Place, kind: type[Record]) -> Record | None:
    """The record; None if there is none. Raises Damaged, and OSError for a fault that passes."""
    try:
        return kind.model_validate_json(place.read(_MOST_BYTES))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        # Perhaps cut short by a loss of power, which no process survived either.
        raise Damaged(f"{place.path} is damaged: {explain(error, kind)}") from error
    except OSError as error:
        if local_faults.hinders_reading(error):
            raise
        raise Damaged(f"{place.path} cannot be read: {error}") from error


def read_or_none(place: Place, kind: type[Record]) -> Record | None:
    """The record; None if there is none, or a damaged one. Raises OSError for a fault that passes."""
    try:
        return read(place, kind)
    except Damaged as damaged:
        log.warning("%s", damaged)
        return None
