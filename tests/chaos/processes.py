"""The processes of a run. They are found by a mark in their environment, and signalled by pidfd."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "CHAOS_RUN"
_GONE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """A process of a job, with its environment."""

    pid: int
    parent: int
    environment: dict[str, str]

    @property
    def job(self) -> int:
        """The job; 0 if unknown."""
        return int(self.environment.get("JOB_ID", "0"))

    @property
    def attempt(self) -> int:
        """The attempt; 0 if unknown."""
        return int(self.environment.get("JOB_ATTEMPT", "0"))


def marked(run: str) -> list[Found]:
    """Find all processes of the run's jobs."""
    mark = f"{MARK}={run}".encode()
    found = []
    for pid in _pids():
        with suppress(OSError, IndexError):
            fields = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if mark in fields:
                pairs = (os.fsdecode(field).partition("=") for field in fields if field)
                found.append(Found(pid, parent_of(pid), {name: value for name, _, value in pairs}))
    return found


def supervisors(folder: Path) -> list[int]:
    """Find the supervisors of ranks whose folders are below this one."""
    return [pid for pid in _pids() if is_supervisor(pid, folder)]


def is_supervisor(pid: int, folder: Path = Path("/")) -> bool:
    """Return whether this is the supervisor of a rank whose folder is below this one."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return False
    rank = Path(os.fsdecode(line[-1]))
    return any(part.endswith(b"supervisor.py") for part in line) and rank.is_relative_to(folder)


class Held:
    """A pidfd of a process: it never refers to another one. Opening it fails if the process is gone."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)

    def send(self, number: int) -> None:
        """Signal the process, unless it is gone."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)


def kill_all(run: str, folder: Path) -> list[str]:
    """End all processes of a run. Return their command lines."""
    names = []
    deadline = time.monotonic() + _GONE_SECONDS
    while left := [*supervisors(folder), *(found.pid for found in marked(run))]:
        for pid in left:
            with suppress(OSError):
                names.append(
                    Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return names


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208


def parent_of(pid: int) -> int:
    """Return the pid of the parent; 0 if the process is gone."""
    # proc(5): "pid (name) state ppid …". The name may contain any character, even ")".
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
