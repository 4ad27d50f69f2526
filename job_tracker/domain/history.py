"""The history of a job: its moves, decided endings, and preemptions."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from job_tracker.domain.diagnosis import Diagnosis
from job_tracker.domain.eviction import Eviction
from job_tracker.domain.progress import NO_SAVES, Saved, Saves
from job_tracker.domain.states import LIVE_STATES, JobState


class PreemptionReason(StrEnum):
    """The reason why an attempt is stopped although it could continue. The values are stable."""

    PRIORITY = "priority"
    """A waiting job has a higher priority in the same queue."""
    RECLAIM = "reclaim"
    """The queue of a waiting job takes back capacity of its guaranteed quota."""
    SHRINK = "shrink"
    """An elastic job continues with fewer instances, so that a waiting job can start."""
    GROW = "grow"
    """An elastic job continues with more instances, since there is free capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """The stop of an attempt, so that a waiting job can start or the stopped job can continue in a new size.

    The stopped job is queued again, and the attempt does not count towards `max_attempts`.
    """

    by_job: int
    """The waiting job. 0: there is none, and the stopped job continues with more instances."""
    why: PreemptionReason
    by_attempt: int = 0
    """The number of attempts that the waiting job had made before this stop was decided."""
    by_project: str = ""
    trainers: int = 0
    """The number of trainers with which the stopped job continues at once. 0: it waits for its turn."""
    flavor: str = ""
    """The kind of machine on which the stopped job continues at once. Empty: any."""

    @property
    def is_resize(self) -> bool:
        """Return whether the stopped job continues at once in another size.

        A resize does not count as a preemption.
        """
        return self.trainers > 0

    def sentence(self, project: str) -> str:
        """Return the reason in words, for members of `project`. Jobs of other projects are not named."""
        other = f"job {self.by_job}" if self.by_project == project else "another job"
        why = {
            PreemptionReason.PRIORITY: f"{other} has a higher priority",
            PreemptionReason.RECLAIM: f"the queue of {other} takes back its guaranteed quota",
            PreemptionReason.SHRINK: f"{other} starts with the capacity that this frees",
            PreemptionReason.GROW: "more instances are free",
        }[self.why]
        if self.why is PreemptionReason.GROW:
            return f"Made larger: {why}."
        return f"Preempted: {why}." if not self.trainers else f"Made smaller: {why}."


@dataclass(frozen=True, slots=True)
class Ending:
    """The decided outcome of an attempt or of a job.

    It is written before the stop of the group begins. With state BACKOFF, it is the failure of an attempt,
    after which there will be another attempt. With state QUEUED, it is the preemption or the eviction of an
    attempt. With other states, it is the outcome of the job.
    """

    state: JobState
    decided_at: datetime
    diagnosis: Diagnosis | None = None
    at_once: bool = False
    """Whether workers are stopped at once after their master has succeeded, without time to end by
    themselves."""
    has_model: bool | None = None
    """Whether there are files at the job's `model_uri` after a success; None if unknown."""
    preemption: Preemption | None = None
    """The job for which the attempt is stopped, and the reason. With a state other than QUEUED: the job for
    which the attempt was being stopped when this ending was decided. The freed capacity is still for that
    job."""
    eviction: Eviction | None = None
    """The eviction that stops the attempt; only with state QUEUED."""

    @property
    def noticed_at(self) -> float:
        """Return when the ranks got notice, in seconds since 1970.

        Later failures may be consequences of the notice.
        """
        return (self.eviction.at if self.eviction else self.decided_at).timestamp()

    def sentence(self, project: str) -> str:
        """Return why the attempt is interrupted; "" if it is not interrupted.

        The text is for members of `project`. It does not name jobs of other projects.
        """
        preemption = self.preemption if self.state is JobState.QUEUED else None
        return _sentence(preemption, self.eviction, project)


@dataclass(frozen=True, slots=True)
class Move:
    """An entry of a job's history: the new state, the time, the attempt, and the diagnosis of a failure.

    An entry with a live state and a diagnosis stands for the restart of a failed rank of an elastic group.
    """

    state: JobState
    at: datetime
    attempt: int
    diagnosis: Diagnosis | None = None
    note: str = ""
    """The reason why the job waited in that state."""
    preemption: Preemption | None = None
    """The preemption of the attempt, if the job is queued again because of it."""
    eviction: Eviction | None = None
    """The eviction of the attempt, if the job is queued again because of it."""
    saved: Saved | None = None
    """The last checkpoint that the attempt has reported. It is set when the next attempt begins."""
    saves: Saves = NO_SAVES
    """The number of the attempt's checkpoints, and a few of them with their times. Set when the next attempt
    begins."""

    @property
    def is_restart(self) -> bool:
        """Return whether this entry is the restart of a rank instead of a new state."""
        return self.state in LIVE_STATES and self.diagnosis is not None

    @property
    def is_uncounted(self) -> bool:
        """Return whether the attempt was preempted, resized or evicted, so that it does not count."""
        return self.preemption is not None or self.eviction is not None

    def sentence(self, project: str) -> str:
        """Return why the attempt was interrupted; "" if it was not interrupted.

        The text is for members of `project`. It does not name jobs of other projects.
        """
        return _sentence(self.preemption, self.eviction, project)


def _sentence(preemption: Preemption | None, eviction: Eviction | None, project: str) -> str:
    if eviction is not None:
        return eviction.sentence()
    return preemption.sentence(project) if preemption is not None else ""
