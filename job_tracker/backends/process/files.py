"""The folders of the process backend: all state that it needs after a restart.

live/<group>/group.json             the launched group; written first
live/<group>/stop.json              the order to stop; written before any process is ended
live/<group>/<rank>/command         input of the supervisor; see supervisor.py
live/<group>/<rank>/restarts        how often the rank was restarted; written before `command`
live/<group>/<rank>/work/           where the rank starts: empty, or the files of its uploaded program
live/<group>/<rank>/unpacked        see working_copies.py
live/<group>/<rank>/tmp/            the rank's temporary files (TMPDIR)
live/<group>/<rank>/…               output of the supervisor; see supervisor.py
live/<group>/supervisors.log        the errors of supervisors that fail
kept/<group>/                       a stopped group, without `command`, which holds secrets
kept/<group>/keep.json              how long this folder stays unchanged; written before the group moves here
ended/<group>/                      a cleaned-up group, until its logs are in storage
gone/<group>/                       a group that is being deleted

A name that ends with .part belongs to a file that is being written, or whose writer died.
"""

import fcntl
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from job_tracker.backends.process import records
from job_tracker.backends.process.records import ExitRecord, ProcessRecord
from job_tracker.backends.process.working_copies import Unpack, make_copy
from job_tracker.common.local_faults import hinders_reading
from job_tracker.domain import naming
from job_tracker.domain.group import GroupRef
from job_tracker.files.untrusted import Place, Suspicious

log = logging.getLogger(__name__)

_MAX_COMMAND = 8 << 20
MAX_ENTRIES = 1_000_000
"""The largest number of names that are read from a folder. Training can create any number of files."""
_MAX_PROGRAM = 64 << 10


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
        """Read the arguments that the supervisor executes; empty if they cannot be read or are too long."""
        try:
            fields = (self.place / "command").read(_MAX_COMMAND).split(b"\0")
            arguments = [field.decode(errors="replace") for field in fields[3 : 3 + int(fields[2])]]
        except (OSError, ValueError, IndexError):
            return []
        # Training can write this file. The arguments become part of the job, so their size is limited.
        return arguments if sum(map(len, arguments)) <= _MAX_PROGRAM else []

    def processes(self) -> ProcessRecord | None:
        """Read the pids of the rank; None if its supervisor has not recorded them yet."""
        return records.read_or_none(self.place / "process.json", ProcessRecord)

    def exit_record(self) -> ExitRecord | None:
        """Read how the rank ended; None if it has not ended, or if its supervisor could not record this."""
        return records.read_or_none(self.place / "exit.json", ExitRecord)

    def is_supervised(self) -> bool:
        """Return whether a live supervisor holds the lock of this rank."""
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
        """Return whether the rank's working folder has the files of an uploaded program."""
        return (self.place / "unpacked").is_there()

    def was_started(self) -> bool:
        """Return whether a supervisor was ever started for this rank."""
        try:
            return (self.place / "process.json").is_there() or self.is_supervised()
        except OSError as error:
            if hinders_reading(error):
                raise
            return True  # training code has removed the service's access, so do not start the rank again

    def restarts(self) -> int:
        """Return how often the rank was restarted, as recorded in its folder."""
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
        """Remove the records of the rank's start and end, so that it counts as never started.

        Keep its output.
        """
        # The order matters: a crash in between leaves a rank that counts as ended. In the opposite
        # order, a crash would leave a rank that can never start.
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
        """Make the folder ready for a supervisor.

        `memory` is the memory limit in bytes, and `most_log` is the number of bytes of log to keep. `unpack`
        writes the files of an uploaded program; None if there is none.
        """
        # Parents are not created: that would restore the folder of a group that another service has stopped
        # in the meantime.
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
    """The defect of the group's record (group.json); empty if it has none.

    If it has a defect, the roles come from the names of the ranks' folders.
    """

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
        for name in names_in(self.place):
            with suppress(FileNotFoundError, Suspicious):
                (self.place / name).open_to_owner()

    def order_to_stop(self, grace: float) -> None:
        """Write the order to stop the group within `grace` seconds.

        Once the order is written, supervisors start no rank of the group.
        """
        _publish_json(self.place / "stop.json", {"grace": grace})

    def is_to_stop(self) -> bool:
        """Return whether the order to stop the group was written."""
        return (self.place / "stop.json").is_there()

    def order_to_keep(self, until: datetime) -> None:
        """Write the time until which the folder stays unchanged after the group has stopped."""
        _publish_json(self.place / "keep.json", {"until": until.timestamp()})


def names_in(place: Place) -> list[str]:
    """List the names in a folder; empty if the folder does not exist."""
    try:
        return place.names(MAX_ENTRIES)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _publish_json(place: Place, content: dict[str, Any]) -> None:
    place.publish(json.dumps(content).encode())
