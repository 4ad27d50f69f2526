"""Kills processes whose supervisor cannot end them, because it was killed or its files are gone."""

import os
from contextlib import suppress
from pathlib import Path

import psutil

_ROUNDS = 5
_ROUND_SECONDS = 5.0


def kill_all_below(folder: Path, session: int | None = None) -> None:
    """Kill all processes and supervisors of the ranks whose folders are at or below `folder`, and all
    processes of `session`.

    Processes of ranks are recognised by their HOME and supervisors by their arguments, both as they were at
    the start of the process. A process can change these values only for itself, so no job can cause another
    job's processes to be killed. A process of a rank is missed only if it has left the session, and
    either was started with another HOME or has changed this value.
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
        for process in ranks if ranks and number == 0 else (*ranks, *supervisors):
            with suppress(psutil.Error):  # the process is gone, or another user owns it (a setuid program)
                process.kill()
        psutil.wait_procs([*ranks, *supervisors], timeout=_ROUND_SECONDS)  # the next round finds new children


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


def _home_of(process: psutil.Process) -> str:
    return process.environ().get("HOME", "")


def _is_supervisor(process: psutil.Process, inside: str) -> bool:
    arguments = process.cmdline()
    return (
        len(arguments) > 1
        and arguments[-2].endswith("/supervisor.py")
        and f"{arguments[-1]}{os.sep}".startswith(inside)
    )
