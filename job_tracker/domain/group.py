"""A group: the instances of one attempt of a job, and their ranks."""

from dataclasses import dataclass, field
from enum import StrEnum

from job_tracker.domain import naming

MASTER_RANK = 0


class Phase(StrEnum):
    """What one rank of a group is doing. STOPPED: ended by us, because the job was over."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self not in (Phase.PENDING, Phase.RUNNING)


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank of a group. `exit_code` is None while it runs and 128 + N after signal N.

    `note` says what a rank that has not ended is waiting for, if that is known. `restarts` is how often
    it was started anew in this attempt, as an elastic job allows.
    """

    rank: int
    phase: Phase
    exit_code: int | None = None
    note: str = ""
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class GroupRef:
    """The outside name of one attempt's group: what a backend finds it again by."""

    name: str
    job_id: int
    attempt: int
    home: str = field(default="", compare=False)
    """That of its job, where it is known: what an engine says of a group has none."""

    @property
    def job_folder(self) -> str:
        """The relative path of its job's folders."""
        return naming.job_folder(self.home, self.job_id)
