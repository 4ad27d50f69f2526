"""The processes of this machine, as /proc shows them (proc(5))."""

import os
from dataclasses import dataclass
from pathlib import Path

_PF_EXITING = 0x4  # include/linux/sched.h


@dataclass(frozen=True, slots=True)
class Stat:
    """Facts about a process."""

    state: bytes
    parent: int
    flags: int
    threads: int
    started: int
    """The time of its start. With the pid, it identifies the process."""

    @property
    def is_exiting(self) -> bool:
        """Whether the process is about to end."""
        return bool(self.flags & _PF_EXITING)

    @property
    def is_dead(self) -> bool:
        """Whether the process has ended, and only its parent has not noticed yet."""
        # A process whose main thread has ended looks like a zombie, although other threads still run.
        return self.state in b"ZX" and self.threads <= 1


def stat_of(pid: int) -> Stat | None:
    """Return facts about a process; None if there is none, or if it may not be read."""
    try:
        # "pid (name) state ppid …". The name may contain any character, even ")".
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return Stat(fields[0], int(fields[1]), int(fields[6]), int(fields[17]), int(fields[19]))


def descendants_of(pid: int) -> dict[int, Stat]:
    """Return the descendants of a process by pid, zombies included.

    A process that starts during the call may be missing. Raises OSError if /proc cannot be read.
    """
    # `psutil.Process.children` leaves out the descendants of a process that ends during the call, and fails
    # if one process of the machine may not be read.
    found = {int(name): stat_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
    children: dict[int, list[int]] = {}
    for each, stat in found.items():
        if stat is not None:
            children.setdefault(stat.parent, []).append(each)
    below: dict[int, Stat] = {}
    parents = [pid]
    while parents:
        for child in children.get(parents.pop(), ()):
            stat = found[child]
            if stat is not None and child not in below:
                below[child] = stat
                parents.append(child)
    return below
