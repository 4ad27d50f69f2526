"""The folders of the process backend: all state that it needs after a restart.

live/<group>/group.json             the launched group; written first
live/<group>/stop.json              the order to stop; written before any process is ended
live/<group>/<rank>/command         input of the supervisor; see supervisor.py
live/<group>/<rank>/restarts        how often the rank was restarted; written before `command`
live/<group>/<rank>/work/           where the rank starts: empty, or the files of its uploaded program
live/<group>/<rank>/unpacked        see working_copies.py
live/<group>/<rank>/…               output of the supervisor; see supervisor.py
kept/<group>/                       a stopped group, without `command`, which holds secrets
kept/<group>/keep.json              how long it stays unchanged; written before the group moves here
ended/<group>/                      a cleaned-up group, until its logs are in storage
gone/<group>/                       a group that is being deleted

A name that ends with .part belongs to a file that is being written, or whose writer died.
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
from job_tracker.backends.process.working_copies import Unpack, make_copy
from job_tracker.common.local_faults import hinders_reading
from job_tracker.domain import naming
from job_tracker.domain.group import GroupRef
from job_tracker.files.untrusted import PART, Place, Suspicious

log = logging.getLogger(__name__)

_MAX_COMMAND = 8 << 20
_MAX_ENTRIES = 1_000_000
_MAX_PROGRAM = 64 << 10
_GROUP = re.compile(r".*-(?P<job>\d{1,10})(-r(?P<retry>\d{1,10}))?")


@dataclass(frozen=True, slots=True)
class RankFolder:
    """The folder of one rank. Its methods access the disk and raise OSError for temporary faults."""

    place: Place

    @property
    def path(self) -> Path:
        """The path of the folder."""
        return self.place.path

    @property
    def log(self) -> Place:
        """The folder of the rank's output; see job_tracker.logs."""
        return self.place / "log"

    def arguments(self) -> list[str]:
        """Read the arguments that the supervisor executes; empty if they cannot be read."""
        try:
            fields = (self.place / "command").read(_MAX_COMMAND).split(b"\0")
            arguments = [field.decode(errors="replace") for field in fields[3 : 3 + int(fields[2])]]
        except (OSError, ValueError, IndexError):
            return []
        # Training can write this file. The arguments become part of the job, so their size is limited.
        return arguments if sum(map(len, arguments)) <= _MAX_PROGRAM else []

    def processes(self) -> ProcessRecord | None:
        """Read the pids of the rank, once its supervisor has recorded them."""
        return records.read_or_none(self.place / "process.json", ProcessRecord)

    def exit_record(self) -> ExitRecord | None:
        """Read how the rank ended; None before that, or if its supervisor could not record it."""
        return records.read_or_none(self.place / "exit.json", ExitRecord)

    def is_supervised(self) -> bool:
        """Return whether a live supervisor holds this rank."""
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

    def has_copy(self) -> bool:
        """Return whether the rank starts in files of an uploaded program."""
        return (self.place / "unpacked").is_there()

    def was_started(self) -> bool:
        """Return whether a supervisor was ever started for this rank."""
        try:
            return (self.place / "process.json").is_there() or self.is_supervised()
        except OSError as error:
            if hinders_reading(error):
                raise
            return True  # training code has removed our access, so nothing is started there again

    def restarts(self) -> int:
        """Read how often the rank was restarted."""
        try:
            restarts = int((self.place / "restarts").read(20))
        except ValueError:
            return 0
        except OSError as error:
            if hinders_reading(error):
                raise
            return 0
        return restarts if 0 <= restarts <= records.MAX_RESTARTS else 0

    def forget_end(self) -> None:
        """Reset the rank to "never started", but keep its output."""
        # In this order: a crash in between leaves a rank that has ended. In the other order, it would leave a
        # rank that can never start.
        for name in ("exit.json", "process.json"):
            (self.place / name).unlink()

    def prepare(
        self,
        argv: tuple[str, ...],
        environment: dict[str, str],
        memory: int | None,
        most_log: int,
        restarts: int = 0,
        unpack: Unpack | None = None,
    ) -> None:
        """Make the folder ready for a supervisor. `most_log` is the number of bytes of log to keep.

        `unpack` writes the files of an uploaded program.
        """
        # Without parents: that would bring back a group that another service has stopped in the meantime.
        self.place.make_folder(parents=False)
        (self.place / "tmp").make_folder(parents=False)
        if unpack is None:
            (self.place / "work").make_folder(parents=False)
        else:
            make_copy(self.place, unpack)
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
    """The role of each rank."""
    ports: tuple[int, ...]
    """A port for each rank, or only the master's port."""
    damage: str = ""
    """The defect of the group's record, if any. The roles then come from the names of its folders."""

    @property
    def path(self) -> Path:
        """The path of the folder."""
        return self.place.path

    def rank(self, rank: int) -> RankFolder:
        """Return the folder of one rank."""
        return RankFolder(self.place / naming.instance_name(self.group.name, rank, self.roles[rank]))

    @property
    def supervisors_log(self) -> Place:
        """The output of supervisors that fail."""
        return self.place / "supervisors.log"

    def open_to_owner(self) -> None:
        """Restore the service's access to the folders, in case training code has removed it."""
        self.place.open_to_owner()
        for name in _names(self.place):
            with suppress(FileNotFoundError, Suspicious):
                (self.place / name).open_to_owner()

    def order_to_stop(self, grace: float) -> None:
        """Write the order to stop. From then on no supervisor starts a rank of the group."""
        _publish_json(self.place / "stop.json", {"grace": grace})

    def order_to_keep(self, until: datetime) -> None:
        """Write how long the folder stays unchanged after the group has stopped."""
        _publish_json(self.place / "keep.json", {"until": until.timestamp()})


class Folders:
    """The groups of one backend below one folder. Groups of other stores are ignored."""

    def __init__(self, root: Path, store_id: str = "") -> None:
        self._root = root
        self._store_id = store_id
        self._live = Place(root, ("live",))
        self._kept = Place(root, ("kept",))
        self._ended = Place(root, ("ended",))
        self._gone = Place(root, ("gone",))

    def compare(self, known: Collection[GroupRef]) -> tuple[list[GroupFolder], list[GroupRef]]:
        """Return the live groups that are not in `known`, and the known groups that are no longer live."""
        there = set(self._own(self._live))
        names = {_folder_name(group) for group in known}
        # A folder without a record is left from an interrupted launch that never ran anything.
        found = (self._read_group(self._live / name) for name in sorted(there - names))
        gone = [group for group in known if not (self._live / _folder_name(group)).is_folder()]
        return [folder for folder in found if folder is not None], gone

    def foreign(self) -> list[str]:
        """List the folders of live groups that belong to other stores."""
        return sorted({*_names(self._live)} - {*self._own(self._live)})

    def find(self, group: GroupRef) -> GroupFolder | None:
        """Find the folder of a live group."""
        return self._read_group(self._live / _folder_name(group))

    def path_of(self, group: GroupRef) -> Path:
        """Return the path that the folder of a live group has, or would have."""
        return (self._live / _folder_name(group)).path

    def create(self, group: GroupRef, roles: Sequence[str], ports: Sequence[int]) -> GroupFolder:
        """Create a live group, or return the one that another service created at the same time."""
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
        """Move a stopped group out of the live groups and clean it up, or leave that to a later sweep."""
        if keep_until is not None:
            try:
                folder.order_to_keep(keep_until)
            except OSError as error:  # on a full disk, removing the group helps
                log.warning("%s is removed early, since it cannot be kept: %s", folder.path, error)
        with suppress(FileNotFoundError):  # another service has moved it
            folder.open_to_owner()
        kept = _move(folder.place, self._kept)
        try:
            _remove_secrets(kept)
            if keep_until is None:
                self._clean_up(kept)
        except OSError as error:
            log.warning("%s is left to the next sweep: %s", kept.path, error)

    def sweep(self, now: datetime) -> None:
        """Clean up groups that need not be kept any longer, and those that a killed service did not clean
        up."""
        for name in self._own(self._kept):
            place = self._kept / name
            try:
                _remove_secrets(place)
                record = records.read_or_none(place / "keep.json", KeepRecord)
                if record is None or record.until <= now.timestamp():
                    self._clean_up(place)
            except FileNotFoundError:
                continue  # a concurrent stop has already moved it
            except Suspicious as error:
                log.warning("removing %s: it is not a group's folder: %s", place.path, error)
                _remove(place)
            except OSError as error:
                if hinders_reading(error):
                    raise
                log.warning("%s is left to the next sweep: %s", place.path, error)
        for name in _names(self._gone):
            _remove(self._gone / name)

    def remove_unrecorded(self, group: GroupRef) -> None:
        """Delete the remains of a launch that was interrupted before it wrote the group's record."""
        if self.find(group) is None:
            _remove(self._live / _folder_name(group))

    def rank(self, group: GroupRef, rank: int) -> RankFolder | None:
        """Find the folder of a rank that has begun a log."""
        for place in (self._live, self._kept, self._ended):
            found = self._read_group(place / _folder_name(group))
            if found is not None and rank < len(found.roles) and _is_folder(found.rank(rank).log):
                return found.rank(rank)
        return None

    def stopped(self) -> list[GroupRef]:
        """List the groups of which only the logs are left."""
        found = (self._read_group(self._ended / name) for name in self._own(self._ended))
        return [folder.group for folder in found if folder is not None]

    def remove_logs(self, group: GroupRef) -> None:
        """Delete the logs of a stopped group. The folder moves first, so no reader sees a part of it."""
        with suppress(FileNotFoundError):  # already removed
            _remove(_move(self._ended / _folder_name(group), self._gone))

    def remove(self, group: GroupRef) -> None:
        """Delete all remains of a stopped group."""
        for place in (self._live, self._kept, self._ended):
            _remove(place / _folder_name(group))

    def _own(self, place: Place) -> list[str]:
        """List the names in the folder that belong to this store's groups or to groups without a store."""
        return [name for name in _names(place) if _store_of(name) in ("", self._store_id)]

    def _clean_up(self, kept: Place) -> None:
        """Reduce a stopped group to its logs and its exit records."""
        for folder in _folders_in(kept):
            for name in ("work", "tmp"):  # these may be larger than all logs together
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
            group = _group_named(place.name)  # training code can write the record
            if group is not None and group == GroupRef(record.name, record.job_id, record.attempt):
                return GroupFolder(place, group, record.roles, record.ports)
            damage = f"{place.path}/group.json belongs to another group"
        except Damaged as damaged:
            damage = str(damaged)
        except OSError as error:
            if hinders_reading(error):
                raise
            damage = f"{place.path} cannot be read: {error}"
        return _damaged(place, damage)


def _folder_name(group: GroupRef) -> str:
    """Return the name of a group's folder. Group names are DNS labels, so they contain no dot."""
    store_id = naming.store_of(group.home)
    return f"{store_id}.{group.name}" if store_id else group.name


def _store_of(folder: str) -> str:
    """Return the store id in a folder's name, or ""."""
    return folder.rpartition(".")[0]


def _group_named(folder: str) -> GroupRef | None:
    """Return the group whose folder has this name; None if the name is not a group's."""
    store_id, _, name = folder.rpartition(".")
    found = _GROUP.fullmatch(name)
    home = naming.home_in_store(store_id) if store_id else ""
    return found and GroupRef(name, int(found["job"]), int(found["retry"] or 0) + 1, home)


def _damaged(place: Place, damage: str) -> GroupFolder | None:
    """Return a group whose record is unreadable, as far as the names of its folders describe it."""
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
        folders = []  # the group's processes are found without them
    for folder in folders:
        rank, _, role = folder.name.removeprefix(f"{group.name}-").partition("-")
        if re.fullmatch("[1-9][0-9]{0,8}", rank) and records.is_role(role):
            found[int(rank)] = role
    # Training can make folders, too: count the folders, but ignore the numbers in their names.
    ranks = range(min(len(found) + 1, records.MAX_RANKS))
    roles = {**found, 0: naming.MASTER}
    return GroupFolder(place, group, tuple(roles.get(rank, naming.WORKER) for rank in ranks), (), damage)


def _names(place: Place) -> list[str]:
    try:
        return place.names(_MAX_ENTRIES)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _folders_in(place: Place) -> list[Place]:
    """List the folders inside, without symbolic links and other files."""
    return [place / name for name in _names(place) if _is_folder(place / name)]


def _is_folder(place: Place) -> bool:
    """Return whether this is an accessible folder. Raises OSError for a temporary fault."""
    try:
        return place.is_folder()
    except OSError as error:
        if hinders_reading(error):
            raise
        return False


def _move(place: Place, below: Place) -> Place:
    """Move a group's folder. Raises FileNotFoundError if another service has moved it."""
    below.make_folder()
    target = below / place.name
    if target.is_there() and place.is_there():
        # The target exists if a launch failed and the service died before it recorded that.
        _remove(target)
    place.move_to(target)
    return target


def _remove(place: Place) -> None:
    try:
        place.remove()
    except OSError as error:
        log.warning("%s cannot be removed completely; trying again later: %s", place.path, error)


def _remove_secrets(place: Place) -> None:
    # A .part file of a killed service may hold the same secrets.
    for folder in (place, *_folders_in(place)):
        for name in folder.names(_MAX_ENTRIES):
            if name.endswith(PART) or (name == "command" and folder != place):
                try:
                    (folder / name).unlink()
                except IsADirectoryError:  # training has made a folder of that name
                    (folder / name).remove()


def _publish_json(place: Place, content: dict[str, Any]) -> None:
    place.publish(json.dumps(content).encode())
