"""What the tracker does next about one live job: a pure function of what is written and what is seen."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from job_tracker.backends.base import Observation
from job_tracker.diagnosis import Category, Diagnosis
from job_tracker.model import Ending, Job, JobState, Phase


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the group of the job's attempt, or adopt what of it is there."""


@dataclass(frozen=True, slots=True)
class Save:
    """Write this version of the job, then look again."""

    job: Job


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the group, then write the job's end."""

    ending: Ending


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until something changes, or until so much time has passed."""

    at_most: timedelta | None = None


Step = Launch | Save | Stop | Rest


def next_step(
    job: Job, seen: Observation | None, *, launched: bool, now: datetime, finish_grace: timedelta
) -> Step:
    """The next step for a launching or running job.

    `seen` is None when the backend has no such group. `launched` says whether the launch of this
    attempt is known to be complete: a tracker that has just started does not know, and launches what
    is LAUNCHING once more. `finish_grace` is how long the workers may take to end by themselves once
    the master has succeeded.
    """
    if job.ending is not None:
        return _end(job.ending, seen, now, finish_grace)
    if job.state is JobState.LAUNCHING and not launched:
        return Launch()
    if seen is None:
        return Save(job.decided(Ending(JobState.FAILED, now, _VANISHED)))
    current = job.observed(seen.statuses)
    master = seen.master.status.phase
    if seen.first_failure is not None:
        return Save(current.decided(Ending(JobState.FAILED, now, seen.first_failure)))
    if any(rank.phase is Phase.STOPPED for rank in seen.statuses):
        return Save(current.decided(Ending(JobState.FAILED, now, _VANISHED)))
    if job.state is JobState.LAUNCHING and master is not Phase.PENDING:
        return Save(current.running(now))
    if job.state is JobState.RUNNING and master is Phase.SUCCEEDED:
        return Save(current.decided(Ending(JobState.SUCCEEDED, now)))
    return Rest() if current == job else Save(current)


def _end(ending: Ending, seen: Observation | None, now: datetime, finish_grace: timedelta) -> Step:
    if ending.state is JobState.SUCCEEDED and not ending.at_once and seen is not None and not seen.has_ended:
        left = ending.decided_at + finish_grace - now
        if timedelta(0) < left <= finish_grace:  # more than that is a clock that was set back
            return Rest(at_most=left)
    return Stop(ending)


_VANISHED = Diagnosis(
    category=Category.GROUP_VANISHED,
    summary="The group of processes is gone, and it left no result.",
    resolution="Somebody or something removed it from outside; submit the job again.",
    retryable=True,
)
