"""Startup times of attempts, from admission until training begins, learned from running attempts."""

from datetime import datetime

from job_tracker.domain.job import Job, JobState
from job_tracker.scheduling.durations import RunTimes
from job_tracker.scheduling.experience import kind_of


class Startups:
    """The startup times of jobs.

    They come from a job's own attempts or, if no such time is known, from other jobs of its algorithm.

    The startup ends with the first step that an attempt reports. If no such step is known, the startup ends
    when the master of the job's attempt runs. A new leader learns the times again from running attempts.
    """

    def __init__(self) -> None:
        self._times = RunTimes()
        self._own: dict[int, tuple[int, float]] = {}
        """By job, the number of the last attempt that has begun to train, and its startup time in seconds."""

    def learn(self, job: Job) -> None:
        """Learn the startup time of a running job's attempt, once for each attempt."""
        known = self._own.get(job.id)
        if (known is None or known[0] != job.attempt) and (seconds := _until_first_step(job)) is not None:
            self._own[job.id] = (job.attempt, seconds)
            self._times.add(kind_of(job.spec), seconds)

    def usual(self, job: Job) -> float:
        """Return the usual startup time of the job's attempts in seconds; 0 if nothing is known."""
        own = self._own.get(job.id)
        if own is not None:
            return own[1]
        learned = self._times.expected(kind_of(job.spec))
        return learned.median if learned is not None else _until_running(job) or 0.0

    def forget(self, job_id: int) -> None:
        """Forget the attempts of a job that has ended."""
        self._own.pop(job_id, None)


def _until_first_step(job: Job) -> float | None:
    progress = job.progress
    return _since_admission(job, progress.first_step_at if progress else None)


def _until_running(job: Job) -> float | None:
    return _since_admission(job, job.started_at)


def _since_admission(job: Job, at: datetime | None) -> float | None:
    if job.state is not JobState.RUNNING or job.admitted_at is None or at is None:
        return None
    return max(0.0, (at - job.admitted_at).total_seconds())
