"""The state of a rank, from the state of its container. Pure functions, without I/O."""

from typing import NamedTuple

from job_tracker.backends.base import RankObservation
from job_tracker.backends.docker.containers import Container
from job_tracker.backends.shared.evidence import SENT_FROM_OUTSIDE, USE_LESS_MEMORY, signal_name
from job_tracker.backends.shared.failures import crashed, exited
from job_tracker.backends.shared.labels import PROGRAM_TREE
from job_tracker.backends.shared.programs import for_program
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import Phase, RankStatus

_SIGNALLED, _LAST_SIGNAL = 128, 64
# The message of docker-init if it could not start the program (krallin/tini, src/tini.c).
_INIT_FAILED = "[FATAL tini"
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


class _Life(NamedTuple):
    phase: Phase
    note: str = ""


# Values of `State.Status` of a container that has not ended (moby, container/state.go).
_LIVING = {
    "created": _Life(Phase.PENDING),
    "running": _Life(Phase.RUNNING),
    "paused": _Life(Phase.RUNNING, "It was paused (docker pause), but not by this service"),
    "restarting": _Life(Phase.RUNNING),
}
_TAKEN_AWAY = frozenset({"removing", "dead"})


def observe_rank(
    rank: int, container: Container | None, *, launching: bool, stopping: bool, ended_before: bool
) -> RankObservation:
    """Return the state of a rank, with a diagnosis if it failed.

    If a container is missing, something other than the service has removed it, unless the group is being
    launched (`launching`) or stopped (`stopping`). `ended_before` says that the rank had ended by itself
    before the stop.
    """
    if container is None or container.status in _TAKEN_AWAY:
        return _missing(rank, container, launching=launching, stopping=stopping)
    if not container.has_ended:
        # A status that this version of the service does not know counts as pending for now, because it may
        # change into a known status.
        unknown = _Life(Phase.PENDING, f"The engine reports an unknown status: {container.status!r}")
        life = _LIVING.get(container.status, unknown)
        return RankObservation(RankStatus(rank, life.phase, note=life.note))
    code, at = container.exit_code or 0, container.ended_at
    if stopping and not ended_before:
        return RankObservation(RankStatus(rank, Phase.STOPPED, code), ended_at=at)
    if code == 0:
        return RankObservation(RankStatus(rank, Phase.SUCCEEDED, 0), ended_at=at)
    why = _why_ended(rank, container, code)
    if PROGRAM_TREE in container.labels:
        why = for_program(why, "docker")
    return RankObservation(RankStatus(rank, Phase.FAILED, code), why, at)


def _missing(rank: int, container: Container | None, *, launching: bool, stopping: bool) -> RankObservation:
    if stopping:
        return RankObservation(RankStatus(rank, Phase.STOPPED))
    if launching and container is None:
        return RankObservation(RankStatus(rank, Phase.PENDING))
    return RankObservation(RankStatus(rank, Phase.FAILED), removed(rank))


def _why_ended(rank: int, container: Container, code: int) -> Diagnosis:
    if container.was_out_of_memory:
        summary = (
            f"Rank {rank} was killed because it used more memory than its limit or than the machine has."
        )
        return _diagnosis(rank, container, Category.OUT_OF_MEMORY, summary, USE_LESS_MEMORY)
    if _INIT_FAILED in container.log_tail and code in (_NOT_FOUND, _NOT_EXECUTABLE):
        return _not_started(rank, container, code)
    if _SIGNALLED < code <= _SIGNALLED + _LAST_SIGNAL:
        return _ended_by_signal(rank, container, code - _SIGNALLED)
    return exited(rank, code, container.log_tail or container.error)


def _not_started(rank: int, container: Container, code: int) -> Diagnosis:
    if code == _NOT_FOUND:
        return _diagnosis(
            rank,
            container,
            Category.COMMAND_NOT_FOUND,
            f"The program of rank {rank} was not found in its image.",
            "Correct algorithms.NAME.docker.command, or add the program to the image.",
        )
    return _diagnosis(
        rank,
        container,
        Category.COMMAND_NOT_EXECUTABLE,
        f"The program of rank {rank} could not be executed.",
        "Check the program's permissions and format, the processor architecture of the image, and "
        "algorithms.NAME.docker.command.",
    )


def _ended_by_signal(rank: int, container: Container, number: int) -> Diagnosis:
    name = signal_name(number)
    if number in SENT_FROM_OUTSIDE:
        return _diagnosis(
            rank,
            container,
            Category.KILLED,
            f"Rank {rank} was ended by {name}, which the service did not send.",
            "A user killed it, or the engine or its machine was restarted. Submit the job again.",
            retryable=True,
        )
    return crashed(rank, number, container.log_tail or container.error)


def removed(rank: int) -> Diagnosis:
    """Diagnose that the container of the rank was removed, but not by the service."""
    return Diagnosis(
        category=Category.CONTAINER_REMOVED,
        summary=f"The container of rank {rank} was removed, but not by this service.",
        resolution="Submit the job again.",
        retryable=True,
        rank=rank,
    )


def _diagnosis(
    rank: int,
    container: Container,
    category: Category,
    summary: str,
    resolution: str,
    *,
    retryable: bool = False,
) -> Diagnosis:
    detail = container.log_tail or container.error
    return Diagnosis(
        category=category,
        summary=summary,
        resolution=resolution,
        detail=detail,
        retryable=retryable,
        rank=rank,
    )
