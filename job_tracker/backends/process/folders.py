"""Finds, moves and removes the folders of groups. For the content of these folders, see files.py."""

import logging
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from job_tracker.backends.process import records
from job_tracker.backends.process.files import MAX_ENTRIES, GroupFolder, RankFolder, names_in
from job_tracker.backends.process.records import Damaged, GroupRecord, KeepRecord
from job_tracker.common.local_faults import hinders_reading
from job_tracker.domain import naming
from job_tracker.domain.group import GroupRef
from job_tracker.files.untrusted import PART, Place, Suspicious

log = logging.getLogger(__name__)

_GROUP = re.compile(r".*-(?P<job>\d{1,10})(-r(?P<retry>\d{1,10}))?")


class Folders:
    """The folders of one backend's groups, all below one folder. Groups of other stores are ignored."""

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
        # A folder without a record is left out: its launch was interrupted before any process ran.
        found = (self._read_group(self._live / name) for name in sorted(there - names))
        gone = [group for group in known if not (self._live / _folder_name(group)).is_folder()]
        return [folder for folder in found if folder is not None], gone

    def foreign(self) -> list[str]:
        """List the folders of live groups that belong to other stores."""
        return sorted({*names_in(self._live)} - {*self._own(self._live)})

    def find(self, group: GroupRef) -> GroupFolder | None:
        """Return the folder of a live group; None if there is none."""
        return self._read_group(self._live / _folder_name(group))

    def path_of(self, group: GroupRef) -> Path:
        """Return the path that the folder of a live group has, or would have."""
        return (self._live / _folder_name(group)).path

    def create(self, group: GroupRef, roles: Sequence[str], ports: Sequence[int]) -> GroupFolder:
        """Create the folder of a live group.

        If another service has created the folder at the same time, the record of that service counts.
        """
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
        """Move a stopped group out of the live groups and clean it up.

        Secrets are removed at once. With `keep_until`, all other files stay unchanged until the first call of
        `sweep` after that time. If the clean-up fails, a later `sweep` repeats it.
        """
        if keep_until is not None:
            try:
                folder.order_to_keep(keep_until)
            except OSError as error:  # on a full disk, removing the group frees space
                log.warning("%s is removed early, because it cannot be kept: %s", folder.path, error)
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
        """Clean up groups that need not be kept any longer, and groups that a killed service has left."""
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
        for name in names_in(self._gone):
            _remove(self._gone / name)

    def remove_unrecorded(self, group: GroupRef) -> None:
        """Delete the folder of a launch that was interrupted before it wrote the group's record."""
        if self.find(group) is None:
            _remove(self._live / _folder_name(group))

    def rank(self, group: GroupRef, rank: int) -> RankFolder | None:
        """Return the folder of a rank that has begun a log; None if there is none."""
        for place in (self._live, self._kept, self._ended):
            found = self._read_group(place / _folder_name(group))
            if found is not None and rank < len(found.roles) and _is_folder(found.rank(rank).log):
                return found.rank(rank)
        return None

    def stopped(self) -> list[GroupRef]:
        """List the cleaned-up groups whose logs are still in their folders."""
        found = (self._read_group(self._ended / name) for name in self._own(self._ended))
        return [folder.group for folder in found if folder is not None]

    def remove_logs(self, group: GroupRef) -> None:
        """Delete the logs of a stopped group.

        The folder is moved first, so that no reader sees only a part of the logs.
        """
        with suppress(FileNotFoundError):  # already removed
            _remove(_move(self._ended / _folder_name(group), self._gone))

    def remove(self, group: GroupRef) -> None:
        """Delete all files of a stopped group."""
        for place in (self._live, self._kept, self._ended):
            _remove(place / _folder_name(group))

    def _own(self, place: Place) -> list[str]:
        """List the names in the folder that belong to this store's groups or to groups without a store."""
        return [name for name in names_in(place) if _store_of(name) in ("", self._store_id)]

    def _clean_up(self, kept: Place) -> None:
        """Delete the working and temporary folders of a stopped group. Keep its logs and records."""
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
            group = _group_named(place.name)  # not from the record, which training code can write
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
    """Return the id of the store in the name of a group's folder; "" if the name has none."""
    return folder.rpartition(".")[0]


def _group_named(folder: str) -> GroupRef | None:
    """Return the group whose folder has this name; None if no group's folder has such a name."""
    store_id, _, name = folder.rpartition(".")
    found = _GROUP.fullmatch(name)
    home = naming.home_in_store(store_id) if store_id else ""
    return found and GroupRef(name, int(found["job"]), int(found["retry"] or 0) + 1, home)


def _damaged(place: Place, damage: str) -> GroupFolder | None:
    """Return the folder of a group whose record is unusable. The result's fields come from folder names.

    None: the name of the folder is not that of a group.
    """
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
        folders = []  # the group's processes are found without these folders
    for folder in folders:
        rank, _, role = folder.name.removeprefix(f"{group.name}-").partition("-")
        if re.fullmatch("[1-9][0-9]{0,8}", rank) and records.is_role(role):
            found[int(rank)] = role
    # Training can make folders, too, and forge the numbers in their names. So the number of ranks comes from
    # the number of folders, and not from the highest number in their names.
    ranks = range(min(len(found) + 1, records.MAX_RANKS))
    roles = {**found, 0: naming.MASTER}
    return GroupFolder(place, group, tuple(roles.get(rank, naming.WORKER) for rank in ranks), (), damage)


def _folders_in(place: Place) -> list[Place]:
    """List the folders inside the folder, without symbolic links and files."""
    return [place / name for name in names_in(place) if _is_folder(place / name)]


def _is_folder(place: Place) -> bool:
    """Return whether the place is a folder that can be read. Raises OSError for a temporary fault."""
    try:
        return place.is_folder()
    except OSError as error:
        if hinders_reading(error):
            raise
        return False


def _move(place: Place, below: Place) -> Place:
    """Move a group's folder into the folder `below`, and return its new place.

    Raises FileNotFoundError if another service has moved it.
    """
    below.make_folder()
    target = below / place.name
    if target.is_there() and place.is_there():
        # The target exists if a launch failed, and the service was killed before it recorded the failure: the
        # group was then launched again.
        _remove(target)
    place.move_to(target)
    return target


def _remove(place: Place) -> None:
    try:
        place.remove()
    except OSError as error:
        log.warning("%s cannot be removed completely; trying again later: %s", place.path, error)


def _remove_secrets(place: Place) -> None:
    # A .part file of a killed service may hold the same secrets as `command`.
    for folder in (place, *_folders_in(place)):
        for name in folder.names(MAX_ENTRIES):
            if name.endswith(PART) or (name == "command" and folder != place):
                try:
                    (folder / name).unlink()
                except IsADirectoryError:  # training has made a folder of that name
                    (folder / name).remove()
