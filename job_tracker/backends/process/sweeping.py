"""Kills processes whose supervisor cannot end them: it has stalled, was killed, or has lost its files."""

import os
import select
import signal
import time
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

import psutil

from job_tracker.backends.process.proc import Stat, descendants_of, stat_of

_ROUNDS = 5
_ROUND_SECONDS = 5.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.01, 0.5


def kill_all_below(folder: Path, session: int | None = None) -> None:
    """Kill all processes and supervisors of the ranks whose folders are at or below `folder`, and all
    processes of `session`.

    Processes of ranks are recognised by their HOME and supervisors by their arguments, both as they were at
    the start of the process. A process can change these values only for itself, so no job can cause another
    job's processes to be killed. A process of a rank is missed only if it has left the session, and
    either was started with another HOME or has changed this value. If its supervisor is still alive, such a
    process is killed, too.
    """
    inside = f"{folder}{os.sep}"
    for number in range(_ROUNDS):
        ranks: list[psutil.Process] = []
        supervisors: list[psutil.Process] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if os.getsid(process.pid) == session or _home_of(process).startswith(inside):
                    ranks.append(process)
                elif _is_supervisor(process, inside):
                    supervisors.append(process)
        if not ranks and not supervisors:
            return
        # A supervisor ends with its rank, and records how the rank ended. So the first round kills
        # supervisors only if it has found no other process.
        for process in ranks:
            with suppress(psutil.Error):  # the process is gone, or another user owns it (a setuid program)
                process.kill()
        for process in () if ranks and number == 0 else supervisors:
            with suppress(psutil.Error, ProcessLookupError):
                pidfd = os.pidfd_open(process.pid)
                try:
                    if process.is_running():  # its pid was not reused
                        kill_with_descendants(process.pid, pidfd)
                finally:
                    os.close(pidfd)
        psutil.wait_procs([*ranks, *supervisors], timeout=_ROUND_SECONDS)  # the next round finds new children


def kill_with_descendants(pid: int, pidfd: int) -> None:
    """Kill all descendants of a supervisor, and then the supervisor, to which `pidfd` refers.

    The supervisor is stopped first, so that it does not record the kill as the end of its rank. As long as it
    is alive, it becomes the parent of orphaned descendants. After its death, nothing would tell them from
    foreign processes. Raises OSError if /proc cannot be read for some seconds; then only the supervisor is
    killed.
    """
    end = select.poll()
    end.register(pidfd, select.POLLIN)
    deadline = time.monotonic() + _ROUND_SECONDS
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        known: Set[int] | None = None
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                below = descendants_of(pid)
                # If the supervisor is alive now, its pid was not reused before.
                if end.poll(0):
                    break
                for each, stat in below.items():
                    _kill(each, stat)
                # A scan may miss a process that was just started. But the supervisor is stopped and reaps
                # nothing, so the parent of this process is left as a zombie, and the next scan differs.
                if below.keys() == known and all(stat.is_dead for stat in below.values()):
                    break
                known = below.keys()
            except OSError:  # such as no free descriptor
                if time.monotonic() > deadline:
                    raise
            if time.monotonic() > deadline:  # after a kill, even on a very busy machine
                break
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    except ProcessLookupError:
        pass
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def supervised_elsewhere(store_id: str, root: Path) -> list[Path]:
    """Find the folders of the store's live ranks that are on this machine, but not below `root`."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            arguments = process.cmdline()
            folder = Path(arguments[-1]) if _is_supervisor(process, os.sep) else root
            of_store = folder.parent.name.startswith(f"{store_id}.")
            if of_store and not folder.is_relative_to(root):
                found.append(folder)
    return found


def _kill(pid: int, known: Stat) -> None:
    stat = stat_of(pid)
    if stat is not None and stat.started == known.started and not stat.is_dead:
        with suppress(OSError):  # the process is gone, or another user owns it (a setuid program)
            os.kill(pid, signal.SIGKILL)


def _home_of(process: psutil.Process) -> str:
    return process.environ().get("HOME", "")


def _is_supervisor(process: psutil.Process, inside: str) -> bool:
    arguments = process.cmdline()
    return (
        len(arguments) > 1
        and arguments[-2].endswith("/supervisor.py")
        and f"{arguments[-1]}{os.sep}".startswith(inside)
    )
