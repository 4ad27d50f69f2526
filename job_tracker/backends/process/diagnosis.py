"""Turns the end of a process into a diagnosis, with pure functions."""

import errno
import os
import signal

from job_tracker.backends.process.records import ExecError, ExitRecord
from job_tracker.backends.shared.evidence import SENT_FROM_OUTSIDE, USE_LESS_MEMORY, signal_name
from job_tracker.backends.shared.failures import crashed, exited
from job_tracker.backends.shared.programs import NOT_EXECUTABLE, NOT_FOUND
from job_tracker.domain.diagnosis import Category, Diagnosis

# Shells, and programs that clean up before they end, report an end by signal N as exit code 128 + N.
_SIGNALLED = 128

# The resolutions for a program that is missing, or that cannot be executed.
_OF_CONFIGURED = (
    "Install the program or its interpreter, or correct the algorithm's process.command or process.path in "
    "the service's configuration.",
    "Check its permissions, its format, and process.command in the service's configuration.",
)
_OF_UPLOADED = (NOT_FOUND.format(place="on the service's process.path"), NOT_EXECUTABLE)

_TORCHRUN = "torchrun"
_WITH_TORCHRUN = (
    "torchrun starts the processes of an instance, and comes with PyTorch. Install PyTorch in the service's "
    "Python, or choose an environment that has it: {how}."
)

_NEXT_PORT = "Submit the job again; it gets another port."


def diagnose(
    rank: int, end: ExitRecord, log_tail: str, program: str, *, uploaded: bool = False
) -> Diagnosis | None:
    """Return why the rank failed; None if it did not fail, or if the service stopped it.

    `uploaded` says whether the rank ran an uploaded program.
    """
    if end.error is not None:
        return _not_started(rank, end.error, program, uploaded=uploaded)
    if end.code == 0 or end.stopped:
        return None
    if end.code < 0:
        return _ended_by_signal(rank, -end.code, end.oom_kills, log_tail)
    if end.code - _SIGNALLED in SENT_FROM_OUTSIDE:  # the program caught the signal and reported it
        return _ended_by_signal(rank, end.code - _SIGNALLED, end.oom_kills, log_tail)
    return exited(rank, end.code, log_tail, next_port=_NEXT_PORT)


def supervisor_lost(rank: int, log_tail: str) -> Diagnosis:
    """Return the diagnosis of a rank whose supervisor is gone and has not recorded the rank's end."""
    return Diagnosis(
        category=Category.SUPERVISOR_LOST,
        summary=f"The process that supervises rank {rank} was killed, and the rank with it.",
        resolution="Submit the job again. If the machine did not restart, find out what killed the process.",
        detail=log_tail,
        retryable=True,
        rank=rank,
    )


def records_lost(detail: str) -> Diagnosis:
    """Return the diagnosis of a group whose files were removed or changed while it ran."""
    return Diagnosis(
        category=Category.RECORDS_LOST,
        summary="The service's files about the running group were removed or changed.",
        resolution="Keep clean-up tools and training code away from the service's data folder, then "
        "submit the job again.",
        detail=detail,
        retryable=True,
    )


def no_virtual_environment(folder: str) -> Diagnosis:
    """Diagnose that the algorithm's virtual environment is missing.

    The launch fails with this diagnosis, because the ranks would otherwise run with another Python.
    """
    return Diagnosis(
        category=Category.COMMAND_NOT_FOUND,
        summary=f"The virtual environment {folder!r} does not exist on this machine.",
        resolution="Create it, or correct the algorithm's process.virtual_environment in the service's "
        "configuration.",
    )


def environment_gone(name: str) -> Diagnosis:
    """Diagnose that the named Python environment is no longer configured.

    The launch fails with this diagnosis, because the ranks would otherwise run with another Python.
    """
    return Diagnosis(
        category=Category.LAUNCH_FAILED,
        summary=f"The Python environment {name!r} is no longer configured.",
        resolution="Restore it in process.program_environments of the service's configuration, or choose "
        "another one, and run the program again.",
    )


def _not_started(rank: int, error: ExecError, program: str, *, uploaded: bool) -> Diagnosis:
    reason = os.strerror(error.errno)
    missing, unusable = _OF_UPLOADED if uploaded else _OF_CONFIGURED
    if program == _TORCHRUN:
        missing = _WITH_TORCHRUN.format(
            how="with --environment of trainctl run" if uploaded else "process.virtual_environment"
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Diagnosis(
            category=Category.COMMAND_NOT_FOUND,
            summary=f"The program {program!r} was not found.",
            resolution=missing,
            detail=f"{reason}: {error.file}",
            rank=rank,
        )
    return Diagnosis(
        category=Category.COMMAND_NOT_EXECUTABLE,
        summary=f"The program {program!r} could not be executed: {reason}.",
        resolution=unusable,
        detail=f"{reason}: {error.file}",
        rank=rank,
    )


def _ended_by_signal(rank: int, number: int, oom_kills: int, log_tail: str) -> Diagnosis:
    name = signal_name(number)
    if number == signal.SIGKILL and oom_kills > 0:
        return Diagnosis(
            category=Category.OUT_OF_MEMORY,
            summary=f"The kernel killed rank {rank}: the machine ran out of memory, or the rank reached its "
            "memory limit.",
            resolution=USE_LESS_MEMORY,
            detail=log_tail,
            rank=rank,
        )
    if number in SENT_FROM_OUTSIDE:
        return Diagnosis(
            category=Category.KILLED,
            summary=f"Rank {rank} was ended by {name}, which the service did not send.",
            resolution="Another program or person on the machine killed it; submit the job again.",
            detail=log_tail,
            retryable=True,
            rank=rank,
        )
    return crashed(rank, number, log_tail)
