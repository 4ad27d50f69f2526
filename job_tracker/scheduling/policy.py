"""The input and the decisions of scheduling policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from job_tracker.domain.diagnosis import Diagnosis
from job_tracker.domain.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The head of the queue and the capacity at one moment.

    It has no more jobs than may be admitted at once, so the cost of a plan does not depend on the length of
    the queue.
    """

    capacity: int
    """The number of instances that may run at once."""
    in_use: int
    """The number of instances of live jobs."""
    queued: Sequence[Job]
    """The first queued jobs, in the order of submission."""
    has_room: bool = True
    """Whether this machine had room for the last launch. If not, one job may be admitted as a test."""


class Reason(StrEnum):
    """Why a job waits."""

    CAPACITY = "capacity"
    """Too few instances are free."""
    ORDER = "order"
    """An earlier job is waiting."""
    ROOM = "room"
    """Another job is launched first, to test whether this machine has room again."""


@dataclass(frozen=True, slots=True)
class Admit:
    """The job may start now."""

    job: Job


@dataclass(frozen=True, slots=True)
class Refuse:
    """The job can never start."""

    job: Job
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class Wait:
    """The job stays queued."""

    job: Job
    reason: Reason


Decision: TypeAlias = Admit | Refuse | Wait


class Policy(Protocol):
    """Decides which queued jobs start."""

    def plan(self, snapshot: Snapshot, now: datetime, /) -> Sequence[Decision]:
        """Return one decision for each queued job of the snapshot, in the same order.

        The function is pure: the same snapshot and time give the same plan. It admits at most as many
        instances as are free, and never admits a job behind one that has to wait.
        """
        ...
