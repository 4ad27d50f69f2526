"""What a scheduling policy sees, and what it may decide."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from job_tracker.domain.diagnosis import Diagnosis
from job_tracker.domain.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The head of the queue and the capacity at one time.

    It holds no more jobs than may be admitted at once, so that a plan costs the same however many wait.
    """

    capacity: int
    """How many instances may run at once."""
    in_use: int
    """How many instances live jobs have."""
    queued: Sequence[Job]
    """The first queued jobs, in the order of their submission."""
    has_room: bool = True
    """Whether the last launch found room on this machine; if not, one job may be admitted, to try."""


class Reason(StrEnum):
    """Why a job waits."""

    CAPACITY = "capacity"
    """Too few instances are free for it."""
    ORDER = "order"
    """A job before it waits."""
    ROOM = "room"
    """Another job tries first whether this machine has room for launches again."""


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
        """One decision for each queued job of the snapshot, in the same order.

        Pure: the same snapshot and time give the same plan. Admits at most what fits into the capacity,
        and no job behind one that waits.
        """
        ...
