"""The working folder of a rank that runs an uploaded program: its own copy of the program's files."""

from collections.abc import Callable
from pathlib import Path

from job_tracker.files.untrusted import PART, Place

Unpack = Callable[[Place], None]
"""Writes the files of a program into a new folder. Raises TreeDamaged and OSError."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LONGEST_ID = 100


def make_copy(rank: Place, unpack: Unpack) -> None:
    """Make `work` in the rank's folder, unless it was made since the last reboot.

    The files are written elsewhere and then moved, so `work` is never incomplete. The files are not synced
    to disk, so after a reboot they are written again: `unpacked` has the boot id of the machine at the time
    of writing. Raises the errors of `unpack`.
    """
    work, mark, aside = rank / "work", rank / "unpacked", rank / f"work{PART}"
    boot = _BOOT_ID.read_bytes()
    if work.is_there() and _content(mark) == boot:
        return
    for remains in (aside, work):
        remains.remove()
    try:
        unpack(aside)
    except Exception:
        aside.remove()  # otherwise, a full disk would stay full, and no job could be stored or cancelled
        raise
    mark.publish(boot)
    aside.move_to(work)


def _content(mark: Place) -> bytes | None:
    try:
        return mark.read(_LONGEST_ID)
    except OSError:
        return None
