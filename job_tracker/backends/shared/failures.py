"""Diagnoses a program that failed by itself, from its exit code or signal and the end of its log."""

import signal
from collections.abc import Mapping
from dataclasses import replace

from job_tracker.backends.shared.causes import Cause, cause_in, is_lost_peer
from job_tracker.backends.shared.evidence import TRUST_THE_AUTHORITY, UNTRUSTED, signal_name
from job_tracker.backends.shared.requirements_runner import EXIT_CODE, FAILED
from job_tracker.domain.diagnosis import Category, Diagnosis

_READ_THE_LOG = "Read the end of its log, fix the training code or the parameters, and submit the job again."
_NATIVE = (
    "The fault is in native code (an extension, a driver, mismatched libraries). Read the end of the "
    "rank's log: if the program is in Python, its stacks are there."
)
_OF_SIGNALS: Mapping[int, str] = {
    signal.SIGBUS: "Usually /dev/shm, or the disk of a memory-mapped file, is full: raise shm_size, use "
    "fewer workers of the DataLoader, or free space on the disk.",
    signal.SIGILL: "The program was built for another processor. Use an image or a package for the "
    "processor of this machine.",
}
_SUMMARIES: Mapping[Category, str] = {
    Category.OUT_OF_MEMORY: "Rank {rank} ran out of memory and exited with code {code}.",
    Category.PORT_IN_USE: "Rank {rank} could not listen on its port: another program uses it.",
}


def exited(rank: int, code: int, evidence: str, *, next_port: str = "") -> Diagnosis:
    """Return the diagnosis of a rank that exited with this code, which is not 0.

    If `next_port` is set and another program uses the rank's port, `next_port` is the remedy, and the failure
    is retryable. Only a backend whose next attempt gets another port sets `next_port`.
    """
    if code == EXIT_CODE and FAILED in evidence:
        return _not_installed(rank, evidence)
    cause = cause_in(evidence.splitlines()) or Cause("")
    found = Diagnosis(
        category=cause.category,
        summary=_SUMMARIES.get(cause.category, "Rank {rank} exited with code {code}.").format(
            rank=rank, code=code
        ),
        resolution=cause.remedy or _READ_THE_LOG,
        detail=evidence,
        rank=rank,
        cause=cause.text,
    )
    if cause.category is Category.PORT_IN_USE and next_port:
        return replace(found, resolution=next_port, retryable=True)
    return found


def _not_installed(rank: int, evidence: str) -> Diagnosis:
    problem = (
        TRUST_THE_AUTHORITY
        if UNTRUSTED.search(evidence)
        else "Correct the versions in the file, or ask the operator whether jobs reach the package index."
    )
    return Diagnosis(
        category=Category.REQUIREMENTS_FAILED,
        summary="The packages of the program's requirements file could not be installed.",
        resolution=f"Read the last lines of uv in the detail. {problem} Then run the program again.",
        detail=evidence,
        rank=rank,
    )


def crashed(rank: int, number: int, evidence: str) -> Diagnosis:
    """Return the diagnosis of a rank that crashed with the signal `number`, which its own code has caused."""
    cause = cause_in(evidence.splitlines()) or Cause("")
    remedy = cause.remedy if number == signal.SIGABRT else ""  # C++ aborts after any uncaught error
    return Diagnosis(
        category=Category.CRASHED,
        summary=f"Rank {rank} crashed with {signal_name(number)}.",
        resolution=remedy or _OF_SIGNALS.get(number, _NATIVE),
        detail=evidence,
        rank=rank,
        cause=cause.text,
    )


def only_lost_a_peer(why: Diagnosis) -> bool:
    """Return whether the failure is a crash that names a lost peer as its cause."""
    return why.category is Category.CRASHED and is_lost_peer(why.cause)
