"""From how a process ended to what that means and what to do about it. Pure."""

import errno
import os
import re
import signal

from job_tracker.backends.process.records import ExecError, ExitRecord
from job_tracker.backends.shared.evidence import GIVE_IT_LESS, OUT_OF_MEMORY, SENT_FROM_OUTSIDE, signal_name
from job_tracker.domain.diagnosis import Category, Diagnosis

# How shells, and programs that clean up first, tell that a signal ended them: 128 + its number.
_SIGNALLED = 128

# What programs print when they fail for this reason; looked for in the end of the log only.
_PORT_IN_USE = re.compile(r"EADDRINUSE|[Aa]ddress already in use")


def diagnose(rank: int, end: ExitRecord, log_tail: str, program: str) -> Diagnosis | None:
    """Why the rank failed; None if it did not, or if we ended it ourselves."""
    if end.error is not None:
        return _not_started(rank, end.error, program)
    if end.code == 0 or end.stopped:
        return None
    if end.code < 0:
        return _ended_by_signal(rank, -end.code, end.oom_kills, log_tail)
    if end.code - _SIGNALLED in SENT_FROM_OUTSIDE:  # it has caught the signal, and said so
        return _ended_by_signal(rank, end.code - _SIGNALLED, end.oom_kills, log_tail)
    if OUT_OF_MEMORY.search(log_tail):
        return Diagnosis(
            category=Category.OUT_OF_MEMORY,
            summary=f"Rank {rank} ran out of memory and exited with code {end.code}.",
            resolution=GIVE_IT_LESS,
            detail=log_tail,
            rank=rank,
        )
    if _PORT_IN_USE.search(log_tail):
        return Diagnosis(
            category=Category.PORT_IN_USE,
            summary=f"Rank {rank} could not listen on its port, since another program has it.",
            resolution="Submit the job again: it gets another port.",
            detail=log_tail,
            retryable=True,
            rank=rank,
        )
    return Diagnosis(
        category=Category.CRASHED,
        summary=f"Rank {rank} exited with code {end.code}.",
        resolution="Read the end of its log; mend the training code or its parameters, and submit again.",
        detail=log_tail,
        rank=rank,
    )


def supervisor_lost(rank: int, log_tail: str) -> Diagnosis:
    """Why a rank failed whose supervisor is gone and wrote nothing."""
    return Diagnosis(
        category=Category.SUPERVISOR_LOST,
        summary=f"The process that watches over rank {rank} was killed, and the rank with it.",
        resolution="The machine was restarted, or somebody killed it; submit the job again.",
        detail=log_tail,
        retryable=True,
        rank=rank,
    )


def records_lost(detail: str) -> Diagnosis:
    """Why a group failed whose files were removed or changed while it ran."""
    return Diagnosis(
        category=Category.RECORDS_LOST,
        summary="The files that the service keeps about the running group were removed or changed.",
        resolution="Keep clean-up jobs and the training code away from the service's data folder, then "
        "submit the job again.",
        detail=detail,
        retryable=True,
    )


def _not_started(rank: int, error: ExecError, program: str) -> Diagnosis:
    reason = os.strerror(error.errno)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Diagnosis(
            category=Category.COMMAND_NOT_FOUND,
            summary=f"The program {program!r} was not found.",
            resolution="Install it, or its interpreter, or set the algorithm's process.command and "
            "process.path in the service's configuration.",
            detail=f"{reason}: {error.file}",
            rank=rank,
        )
    return Diagnosis(
        category=Category.COMMAND_NOT_EXECUTABLE,
        summary=f"The program {program!r} could not be executed: {reason}.",
        resolution="Check its permissions and its format, and process.command in the configuration.",
        detail=f"{reason}: {error.file}",
        rank=rank,
    )


def _ended_by_signal(rank: int, number: int, oom_kills: int, log_tail: str) -> Diagnosis:
    name = signal_name(number)
    if number == signal.SIGKILL and oom_kills > 0:
        return Diagnosis(
            category=Category.OUT_OF_MEMORY,
            summary=f"Rank {rank} was killed by the kernel, as the machine or its limit ran out of memory.",
            resolution=GIVE_IT_LESS,
            detail=log_tail,
            rank=rank,
        )
    if number in SENT_FROM_OUTSIDE:
        return Diagnosis(
            category=Category.KILLED,
            summary=f"Rank {rank} was ended by {name}, which the service did not send.",
            resolution="Somebody or something on the machine killed it; submit the job again.",
            detail=log_tail,
            retryable=True,
            rank=rank,
        )
    return Diagnosis(
        category=Category.CRASHED,
        summary=f"Rank {rank} crashed with {name}.",
        resolution="The fault is in native code (an extension, a driver, mismatched libraries): read the "
        "end of its log.",
        detail=log_tail,
        rank=rank,
    )
