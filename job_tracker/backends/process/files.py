"""The folders of the process backend, which hold all that it has to know after a restart.

live/<group>/group.json             what was launched; written before anything else
live/<group>/stop.json              it is to end; written before anything is ended
live/<group>/<rank>/command         what the supervisor is to run; see supervisor.py
live/<group>/<rank>/restarts        how often the rank was started anew; written before `command`
live/<group>/<rank>/…               what the supervisor writes; see supervisor.py
kept/<group>/                       the same, after the group was stopped, but for `command` with its secrets
kept/<group>/keep.json              until when it stays as it is; written before it moves here
ended/<group>/                      what is left then, for its logs, until these are in storage
gone/<group>/                       what is being deleted

<group> is STORE.NAME, with the id of the store that the job is in, or NAME for jobs accepted before there
was one. Groups of other stores are left alone: another service may have its groups here, too.

A name that ends with .part is of a file that is being written, or whose writer died.
"""

import errno
import fcntl
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from job_tracker import naming
from job_tracker.model import GroupRef

log = logging.getLogger(__name__)

_PART = ".part"


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How a rank's command ended; `code` is -N after signal N. See supervisor.py."""

    code: int
    stopped: bool
    oom_kills: int
    exec_errno: int | None = None
    exec_file: str | None = None
    at: float | None = None
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class RankFolder:
    """The folder of one rank."""

    path: Path

    @property
    def log(self) -> Path:
        """What the rank prints, as a folder; see job_tracker.logs."""
        return self.path / "log"

    def program(self) -> str:
        """What the supervisor was to run, without its arguments."""
        return next(iter(self.arguments()), "")

    def arguments(self) -> list[str]:
        """All of what the supervisor was to run."""
        try:
            fields = (self.path / "command").read_bytes().split(b"\0")
        except FileNotFoundError:
            return []
        return [os.fsdecode(field) for field in fields[3 : 3 + int(fields[2])]]

    def supervisor_pid(self) -> int | None:
        """The pid of the supervisor, once it has written it down."""
        record = _read(self.path / "process.json", supervisor=int)
        return record["supervisor"] if record else None

    def session(self) -> int | None:
        """The session of the rank's processes, which is the pid of the first of them."""
        record = _read(self.path / "process.json", child=int)
        return record["child"] if record else None

    def exit_record(self) -> ExitRecord | None:
        """How the rank ended; None before that, or if nobody lived to write it."""
        record = _read(self.path / "exit.json", code=int, stopped=bool, oom_kills=int)
        if record is None:
            return None
        error = record.get("error") or {}
        return ExitRecord(
            record["code"],
            record["stopped"],
            record["oom_kills"],
            error.get("errno"),
            error.get("file"),
            record.get("at"),
        )

    def is_supervised(self) -> bool:
        """Whether a supervisor holds this rank: true for no longer than that process lives."""
        try:
            lock = os.open(self.path / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def was_started(self) -> bool:
        """Whether a supervisor has, or had, this rank."""
        return (self.path / "process.json").exists() or self.is_supervised()

    def restarts(self) -> int:
        """How often the rank was started anew."""
        try:
            return int((self.path / "restarts").read_text())
        except (OSError, ValueError):
            return 0

    def forget_end(self) -> None:
        """Make it a rank that was never started: what it printed stays."""
        # In this order: with the second alone it has ended, too; with the first it could not be started.
        for name in ("exit.json", "process.json"):
            (self.path / name).unlink(missing_ok=True)

    def prepare(
        self,
        argv: tuple[str, ...],
        environment: dict[str, str],
        memory: int | None,
        most_log: int,
        restarts: int = 0,
    ) -> None:
        """Make the folder, ready for a supervisor. `most_log` is how many bytes of log are kept."""
        # Without its parents: a group that another service has stopped meanwhile is not to rise again.
        for place in (self.path, self.path / "work", self.path / "tmp"):
            place.mkdir(exist_ok=True)
        if restarts:
            _publish(self.path / "restarts", str(restarts).encode())
        limit = "" if memory is None else str(memory)
        assignments = (f"{name}={value}" for name, value in environment.items())
        fields = (limit, str(most_log), str(len(argv)), *argv, *assignments)
        _publish(self.path / "command", b"".join(os.fsencode(field) + b"\0" for field in fields))


@dataclass(frozen=True, slots=True)
class GroupFolder:
    """The folder of one live group."""

    path: Path
    group: GroupRef
    roles: tuple[str, ...]
    """Of each rank."""
    ports: tuple[int, ...]
    """Of each rank, or of the master alone."""

    def rank(self, rank: int) -> RankFolder:
        """The folder of one rank."""
        return RankFolder(self.path / naming.instance_name(self.group.name, rank, self.roles[rank]))

    def supervisors_log(self) -> Path:
        """What supervisors say when they fail."""
        return self.path / "supervisors.log"

    def order_to_stop(self, grace: float) -> None:
        """Write down that the group is to end: from then on no supervisor starts a rank of it."""
        _publish_json(self.path / "stop.json", {"grace": grace})

    def order_to_keep(self, until: datetime) -> None:
        """Write down until when the folder is to stay as it is, once the group has been stopped."""
        _publish_json(self.path / "keep.json", {"until": until.timestamp()})


class Folders:
    """All groups of one backend, below one folder; those of other stores but its own do not exist for it."""

    def __init__(self, root: Path, store_id: str = "") -> None:
        self._store_id = store_id
        self._live = root / "live"
        self._kept = root / "kept"
        self._ended = root / "ended"
        self._gone = root / "gone"

    def compare(self, known: Collection[GroupRef]) -> tuple[list[GroupFolder], list[GroupRef]]:
        """The live groups that are not known yet, and the known ones that live no more."""
        there = {path.name for path in self._own(self._live)}
        names = {_folder_name(group) for group in known}
        # A folder without a record is of a launch that was cut short: nothing of it ever ran.
        found = (self._read_group(self._live / name) for name in sorted(there - names))
        gone = [group for group in known if _folder_name(group) not in there]
        return [folder for folder in found if folder is not None], gone

    def strangers(self) -> list[str]:
        """The folders of live groups that are of other stores."""
        own = set(self._own(self._live))
        return sorted(path.name for path in self._live.glob("*") if path not in own)

    def find(self, group: GroupRef) -> GroupFolder | None:
        """The folder of a live group."""
        return self._read_group(self._live / _folder_name(group))

    def create(self, group: GroupRef, roles: Sequence[str], ports: Sequence[int]) -> GroupFolder:
        """A new live group; or the one that another service made a moment before."""
        path = self._live / _folder_name(group)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        record = {
            "name": group.name,
            "job_id": group.job_id,
            "attempt": group.attempt,
            "home": group.home,
            "roles": list(roles),
            "ports": list(ports),
        }
        with suppress(FileExistsError):
            _publish_json(path / "group.json", record, anew=True)
        return self._read_group(path) or GroupFolder(path, group, tuple(roles), tuple(ports))

    def retire(self, folder: GroupFolder, keep_until: datetime | None) -> None:
        """Move a stopped group out of the live ones, and clean it up, or have that done by a later sweep."""
        if keep_until is not None:
            try:
                folder.order_to_keep(keep_until)
            except OSError as error:  # on a full disk it had better go
                log.warning("%s is not kept for longer: %s", folder.path, error)
        kept = _move(folder.path, self._kept)
        try:
            _remove_secrets(kept)
            if keep_until is None:
                self._clean_up(kept)
        except OSError as error:
            log.warning("%s is left to the next sweep: %s", kept, error)

    def sweep(self, now: datetime) -> None:
        """Clean up what was kept for long enough, and what a service that was killed did not clean up."""
        for path in self._own(self._kept):
            with suppress(FileNotFoundError):  # a stop that runs beside this was first
                _remove_secrets(path)
                record = _read(path / "keep.json", until=float)
                if record is None or record["until"] <= now.timestamp():
                    self._clean_up(path)
        for path in self._gone.glob("*"):
            shutil.rmtree(path, ignore_errors=True)

    def forget_unborn(self, group: GroupRef) -> None:
        """Delete what a launch that was cut short before its record was written has left."""
        if self.find(group) is None:
            shutil.rmtree(self._live / _folder_name(group), ignore_errors=True)

    def rank(self, group: GroupRef, rank: int) -> RankFolder | None:
        """Where the rank has begun a log, if it has."""
        for place in (self._live, self._kept, self._ended):
            found = self._read_group(place / _folder_name(group))
            if found is not None and rank < len(found.roles) and found.rank(rank).log.is_dir():
                return found.rank(rank)
        return None

    def stopped(self) -> list[GroupRef]:
        """The groups of which nothing is left but their logs."""
        found = (self._read_group(path) for path in self._own(self._ended))
        return [folder.group for folder in found if folder is not None]

    def remove_logs(self, group: GroupRef) -> None:
        """Delete what is left of a group for its logs: all of it at once, whoever looks."""
        with suppress(FileNotFoundError):  # it is gone already
            shutil.rmtree(_move(self._ended / _folder_name(group), self._gone), ignore_errors=True)

    def remove(self, group: GroupRef) -> None:
        """Delete all that is left of a stopped group."""
        for place in (self._live, self._kept, self._ended):
            shutil.rmtree(place / _folder_name(group), ignore_errors=True)

    def _own(self, place: Path) -> list[Path]:
        """The folders of groups that are of this store, or of none."""
        return sorted(path for path in place.glob("*") if _store_of(path) in ("", self._store_id))

    def _clean_up(self, kept: Path) -> None:
        """Keep of a stopped group what it printed, and how it ended."""
        for name in ("work", "tmp"):  # which may hold more than all logs together
            for folder in kept.glob(f"*/{name}"):
                shutil.rmtree(folder, ignore_errors=True)
        _move(kept, self._ended)

    @staticmethod
    def _read_group(path: Path) -> GroupFolder | None:
        shape = {"name": str, "job_id": int, "attempt": int, "roles": list, "ports": list}
        record = _read(path / "group.json", **shape)
        if record is None:
            return None
        # By the folder's name: training code can write to the record.
        store_id = _store_of(path)
        home = naming.home(store_id) if store_id else ""
        group = GroupRef(record["name"], record["job_id"], record["attempt"], home)
        return GroupFolder(path, group, tuple(record["roles"]), tuple(record["ports"]))


def _folder_name(group: GroupRef) -> str:
    """The name of a group's folder: the names of groups are DNS labels, so none has a dot in it."""
    store_id = naming.store_of(group.home)
    return f"{store_id}.{group.name}" if store_id else group.name


def _store_of(folder: Path) -> str:
    """The id of the store in a name of a folder; "" without one."""
    return folder.name.rpartition(".")[0]


def _read(path: Path, **shape: type) -> dict[str, Any] | None:
    """The record, if it is there and has at least what it should; training code can write to it, too."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        # Perhaps cut short by a loss of power, which no process survived either.
        log.warning("%s cannot be read: %s", path, error)
        return None
    if isinstance(content, dict) and all(isinstance(content.get(k), kind) for k, kind in shape.items()):
        return content
    log.warning("%s is not what was written there", path)
    return None


def _move(path: Path, below: Path) -> Path:
    """Move a group's folder. Raises FileNotFoundError if somebody else was first."""
    below.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = below / path.name
    try:
        path.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        # There is one already if a launch failed and the service died before it could say so.
        shutil.rmtree(target, ignore_errors=True)
        path.rename(target)
    return target


def _remove_secrets(path: Path) -> None:
    # A part is of a service that was killed while it wrote, perhaps the same secrets.
    for pattern in ("*/command", f"*/*{_PART}", f"*{_PART}"):
        for file in path.glob(pattern):
            file.unlink(missing_ok=True)


def _publish_json(path: Path, content: dict[str, Any], *, anew: bool = False) -> None:
    _publish(path, json.dumps(content).encode(), anew=anew)


def _publish(path: Path, content: bytes, *, anew: bool = False) -> None:
    """Write a file that is whole whenever it is there, and that nobody else may read.

    Raises FileExistsError if it is to be `anew` and is there already.
    """
    descriptor, aside = tempfile.mkstemp(prefix=f"{path.name}.", suffix=_PART, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        if anew:
            path.hardlink_to(aside)
        else:
            Path(aside).rename(path)
    finally:
        Path(aside).unlink(missing_ok=True)
