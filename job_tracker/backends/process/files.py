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

A name that ends with .part is of a file that is being written, or whose writer died.
"""

import fcntl
import json
import logging
import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from job_tracker.backends.process import records
from job_tracker.backends.process.records import Damaged, ExitRecord, GroupRecord, KeepRecord, ProcessRecord
from job_tracker.common.local_faults import hinders_reading
from job_tracker.domain import naming
from job_tracker.domain.group import GroupRef
from job_tracker.files.untrusted import PART, Place, Suspicious

log = logging.getLogger(__name__)

_MOST_COMMAND = 8 << 20
_MOST_ENTRIES = 1_000_000
_MOST_PROGRAM = 64 << 10
_GROUP = re.compile(r".*-(?P<job>\d{1,10})(-r(?P<retry>\d{1,10}))?")


@dataclass(frozen=True, slots=True)
class RankFolder:
    """The folder of one rank. Its methods touch the disk, and raise OSError for faults of it that pass."""

    place: Place

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.place.path

    @property
    def log(self) -> Place:
        """What the rank prints, as a folder; see job_tracker.logs."""
        return self.place / "log"

    def arguments(self) -> list[str]:
        """What the supervisor was to run; nothing if that cannot be read."""
        try:
            fields = (self.place / "command").read(_MOST_COMMAND).split(b"\0")
            arguments = [field.decode(errors="replace") for field in fields[3 : 3 + int(fields[2])]]
        except (OSError, ValueError, IndexError):
            return []
        # Training can write it, and it becomes part of the job, which must fit into an answer.
        return arguments if sum(map(len, arguments)) <= _MOST_PROGRAM else []

    def processes(self) -> ProcessRecord | None:
        """The pids of the rank, once its supervisor has written them down."""
        return records.read_or_none(self.place / "process.json", ProcessRecord)

    def exit_record(self) -> ExitRecord | None:
        """How the rank ended; None before that, or if its supervisor could not write it."""
        return records.read_or_none(self.place / "exit.json", ExitRecord)

    def is_supervised(self) -> bool:
        """Whether a supervisor holds this rank: true for no longer than that process lives."""
        try:
            lock = (self.place / "lock").open()
        except OSError as error:
            if hinders_reading(error):
                raise
            return False
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def was_started(self) -> bool:
        """Whether a supervisor has, or had, this rank."""
        try:
            return (self.place / "process.json").is_there() or self.is_supervised()
        except OSError as error:
            if hinders_reading(error):
                raise
            return True  # training has closed the folder: nothing is started there again

    def restarts(self) -> int:
        """How often the rank was started anew."""
        try:
            restarts = int((self.place / "restarts").read(20))
        except ValueError:
            return 0
        except OSError as error:
            if hinders_reading(error):
                raise
            return 0
        return restarts if 0 <= restarts <= records.MOST_RESTARTS else 0

    def forget_end(self) -> None:
        """Make it a rank that was never started: what it printed stays."""
        # In this order: with the second alone it has ended, too; with the first it could not be started.
        for name in ("exit.json", "process.json"):
            (self.place / name).unlink()

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
        for place in (self.place, self.place / "work", self.place / "tmp"):
            place.make_folder(parents=False)
        if restarts:
            (self.place / "restarts").publish(str(restarts).encode())
        limit = "" if memory is None else str(memory)
        assignments = (f"{name}={value}" for name, value in environment.items())
        fields = (limit, str(most_log), str(len(argv)), *argv, *assignments)
        (self.place / "command").publish(b"".join(os.fsencode(field) + b"\0" for field in fields))


@dataclass(frozen=True, slots=True)
class GroupFolder:
    """The folder of one live group."""

    place: Place
    group: GroupRef
    roles: tuple[str, ...]
    """Of each rank."""
    ports: tuple[int, ...]
    """Of each rank, or of the master alone."""
    damage: str = ""
    """What is wrong with its record, if anything is: its roles are then what the names of its folders say."""

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.place.path

    def rank(self, rank: int) -> RankFolder:
        """The folder of one rank."""
        return RankFolder(self.place / naming.instance_name(self.group.name, rank, self.roles[rank]))

    @property
    def supervisors_log(self) -> Place:
        """What supervisors say when they fail."""
        return self.place / "supervisors.log"

    def open_to_owner(self) -> None:
        """Give the service its rights to the folders back, which training may have taken."""
        self.place.open_to_owner()
        for name in _names(self.place):
            with suppress(FileNotFoundError, Suspicious):
                (self.place / name).open_to_owner()

    def order_to_stop(self, grace: float) -> None:
        """Write down that the group is to end: from then on no supervisor starts a rank of it."""
        _publish_json(self.place / "stop.json", {"grace": grace})

    def order_to_keep(self, until: datetime) -> None:
        """Write down until when the folder is to stay as it is, once the group has been stopped."""
        _publish_json(self.place / "keep.json", {"until": until.timestamp()})


class Folders:
    """All groups of one backend, below one folder; those of other stores but its own do not exist for it."""

    def __init__(self, root: Path, store_id: str = "") -> None:
        self._root = root
        self._store_id = store_id
        self._live = Place(root, ("live",))
        self._kept = Place(root, ("kept",))
        self._ended = Place(root, ("ended",))
        self._gone = Place(root, ("gone",))

    def compare(self, known: Collection[GroupRef]) -> tuple[list[GroupFolder], list[GroupRef]]:
        """The live groups that are not known yet, and the known ones that live no more."""
        there = set(self._own(self._live))
        names = {_folder_name(group) for group in known}
        # A folder without a record is of a launch that was cut short: nothing of it ever ran.
        found = (self._read_group(self._live / name) for name in sorted(there - names))
        gone = [group for group in known if not (self._live / _folder_name(group)).is_folder()]
        return [folder for folder in found if folder is not None], gone

    def strangers(self) -> list[str]:
        """The folders of live groups that are of other stores."""
        return sorted({*_names(self._live)} - {*self._own(self._live)})

    def find(self, group: GroupRef) -> GroupFolder | None:
        """The folder of a live group."""
        return self._read_group(self._live / _folder_name(group))

    def path_of(self, group: GroupRef) -> Path:
        """Where a live group's folder is, or would be."""
        return (self._live / _folder_name(group)).path

    def create(self, group: GroupRef, roles: Sequence[str], ports: Sequence[int]) -> GroupFolder:
        """A new live group; or the one that another service made a moment before."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = self._live / _folder_name(group)
        place.make_folder()
        record = GroupRecord(
            name=group.name,
            job_id=group.job_id,
            attempt=group.attempt,
            home=group.home,
            roles=tuple(roles),
            ports=tuple(ports),
        )
        with suppress(FileExistsError):
            (place / "group.json").publish(record.model_dump_json().encode(), anew=True)
        return self._read_group(place) or GroupFolder(place, group, tuple(roles), tuple(ports))

    def retire(self, folder: GroupFolder, keep_until: datetime | None) -> None:
        """Move a stopped group out of the live ones, and clean it up, or have that done by a later sweep."""
        if keep_until is not None:
            try:
                folder.order_to_keep(keep_until)
            except OSError as error:  # on a full disk it had better go
                log.warning("%s is not kept for longer: %s", folder.path, error)
        with suppress(FileNotFoundError):  # another service was first
            folder.open_to_owner()
        kept = _move(folder.place, self._kept)
        try:
            _remove_secrets(kept)
            if keep_until is None:
                self._clean_up(kept)
        except OSError as error:
            log.warning("%s is left to the next sweep: %s", kept.path, error)

    def sweep(self, now: datetime) -> None:
        """Clean up what was kept for long enough, and what a service that was killed did not clean up."""
        for name in self._own(self._kept):
            place = self._kept / name
            try:
                _remove_secrets(place)
                record = records.read_or_none(place / "keep.json", KeepRecord)
                if record is None or record.until <= now.timestamp():
                    self._clean_up(place)
            except FileNotFoundError:
                continue  # a stop that runs beside this was first
            except Suspicious as error:
                log.warning("%s is no folder of a group, and is removed: %s", place.path, error)
                _remove(place)
            except OSError as error:
                if hinders_reading(error):
                    raise
                log.warning("%s is left to the next sweep: %s", place.path, error)
        for name in _names(self._gone):
            _remove(self._gone / name)

    def forget_unborn(self, group: GroupRef) -> None:
        """Delete what a launch that was cut short before its record was written has left."""
        if self.find(group) is None:
            _remove(self._live / _folder_name(group))

    def rank(self, group: GroupRef, rank: int) -> RankFolder | None:
        """Where the rank has begun a log, if it has."""
        for place in (self._live, self._kept, self._ended):
            found = self._read_group(place / _folder_name(group))
            if found is not None and rank < len(found.roles) and _is_folder(found.rank(rank).log):
                return found.rank(rank)
        return None

    def stopped(self) -> list[GroupRef]:
        """The groups of which nothing is left but their logs."""
        found = (self._read_group(self._ended / name) for name in self._own(self._ended))
        return [folder.group for folder in found if folder is not None]

    def remove_logs(self, group: GroupRef) -> None:
        """Delete what is left of a group for its logs: all of it at once, whoever looks."""
        with suppress(FileNotFoundError):  # it is gone already
            _remove(_move(self._ended / _folder_name(group), self._gone))

    def remove(self, group: GroupRef) -> None:
        """Delete all that is left of a stopped group."""
        for place in (self._live, self._kept, self._ended):
            _remove(place / _folder_name(group))

    def _own(self, place: Place) -> list[str]:
        """The names of the folders in it that are of this store's groups, or of none's."""
        return [name for name in _names(place) if _store_of(name) in ("", self._store_id)]

    def _clean_up(self, kept: Place) -> None:
        """Keep of a stopped group what it printed, and how it ended."""
        for folder in _folders_in(kept):
            for name in ("work", "tmp"):  # which may hold more than all logs together
                _remove(folder / name)
        _move(kept, self._ended)

    @staticmethod
    def _read_group(place: Place) -> GroupFolder | None:
        try:
            if not place.is_folder():
                return None
            record = records.read(place / "group.json", GroupRecord)
            if record is None:
                return None
            group = _group_named(place.name)  # training code can write to the record
            if group is not None and group == GroupRef(record.name, record.job_id, record.attempt):
                return GroupFolder(place, group, record.roles, record.ports)
            damage = f"{place.path}/group.json is of another group"
        except Damaged as damaged:
            damage = str(damaged)
        except OSError as error:
            if hinders_reading(error):
                raise
            damage = f"{place.path} cannot be read: {error}"
        return _damaged(place, damage)


def _folder_name(group: GroupRef) -> str:
    """The name of a group's folder: the names of groups are DNS labels, so none has a dot in it."""
    store_id = naming.store_of(group.home)
    return f"{store_id}.{group.name}" if store_id else group.name


def _store_of(folder: str) -> str:
    """The id of the store in a name of a folder; "" without one."""
    return folder.rpartition(".")[0]


def _group_named(folder: str) -> GroupRef | None:
    """The group whose folder has that name, if a group's could have it."""
    store_id, _, name = folder.rpartition(".")
    found = _GROUP.fullmatch(name)
    home = naming.home(store_id) if store_id else ""
    return found and GroupRef(name, int(found["job"]), int(found["retry"] or 0) + 1, home)


def _damaged(place: Place, damage: str) -> GroupFolder | None:
    """The group whose record cannot be read, as far as the names of its folders tell."""
    group = _group_named(place.name)
    if group is None:
        log.warning("%s", damage)
        return None
    found = {}
    try:
        folders = _folders_in(place)
    except OSError as error:
        if hinders_reading(error):
            raise
        folders = []  # its processes are found without them
    for folder in folders:
        rank, _, role = folder.name.removeprefix(f"{group.name}-").partition("-")
        if re.fullmatch("[1-9][0-9]{0,8}", rank) and records.is_role(role):
            found[int(rank)] = role
    # Training can make folders, too: as many ranks as there are folders, whatever numbers these have.
    ranks = range(min(len(found) + 1, records.MOST_RANKS))
    roles = {**found, 0: naming.MASTER}
    return GroupFolder(place, group, tuple(roles.get(rank, naming.WORKER) for rank in ranks), (), damage)


def _names(place: Place) -> list[str]:
    try:
        return place.names(_MOST_ENTRIES)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _folders_in(place: Place) -> list[Place]:
    """The folders in it that are what the service made."""
    return [place / name for name in _names(place) if _is_folder(place / name)]


def _is_folder(place: Place) -> bool:
    """Whether there is a folder, which can be reached. Raises OSError for a fault that passes."""
    try:
        return place.is_folder()
    except OSError as error:
        if hinders_reading(error):
            raise
        return False


def _move(place: Place, below: Place) -> Place:
    """Move a group's folder. Raises FileNotFoundError if another service was first."""
    below.make_folder()
    target = below / place.name
    if target.is_there() and place.is_there():
        # There is one already if a launch failed and the service died before it could say so.
        _remove(target)
    place.move_to(target)
    return target


def _remove(place: Place) -> None:
    try:
        place.remove()
    except OSError as error:
        log.warning("%s cannot be removed whole, which is tried again: %s", place.path, error)


def _remove_secrets(place: Place) -> None:
    # A part is of a service that was killed while it wrote, perhaps the same secrets.
    for folder in (place, *_folders_in(place)):
        for name in folder.names(_MOST_ENTRIES):
            if name.endswith(PART) or (name == "command" and folder != place):
                try:
                    (folder / name).unlink()
                except IsADirectoryError:  # training has put a folder there
                    (folder / name).remove()


def _publish_json(place: Place, content: dict[str, Any]) -> None:
    place.publish(json.dumps(content).encode())
