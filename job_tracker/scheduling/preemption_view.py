"""The facts that the planner needs to stop jobs for other jobs. They come from stored jobs and notes."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeAlias

from job_tracker.domain.history import Preemption
from job_tracker.domain.job import Job, JobState
from job_tracker.scheduling.leaving import Stakes
from job_tracker.scheduling.model import GoingOn, Stake, Waiting
from job_tracker.scheduling.startups import Startups

Claim: TypeAlias = tuple[int, int]
"""The id of a waiting job for which another job was stopped, and the number of attempts that the waiting
job had made at that time.
"""


class PreemptionView:
    """The stakes of running jobs (see Stake), and the claims of waiting jobs.

    A later leader computes the same values from the stored jobs: each preempted job names the job for which
    it was stopped. Claims are also noted in the store, since a preempted job may end or be deleted before the
    waiting job starts.
    """

    def __init__(self) -> None:
        self.stakes = Stakes()
        """The stakes of running jobs."""
        self.preempted: set[int] = set()
        """Waiting jobs that were preempted, or that continue in another size."""
        self._startups = Startups()
        self._times: dict[int, dict[float, float]] = {}
        """By job, the times in its stake: each time as it is stored, and the same time by the present clock.

        The two differ if the clock was set after the time was stored.
        """
        self._versions: dict[int, int] = {}
        """The version at which each running job was read."""
        self._given_way: dict[int, Preemption] = {}
        """The preemptions of jobs that are being stopped, or that have not run again since they were
        stopped."""
        self._left: dict[int, Claim] = {}
        """The claims of waiting jobs, by the job that was stopped and has ended since."""
        self._attempts: dict[int, int] = {}
        """By waiting job, the number of attempts that it has made, if it has made any."""

    def clear(self) -> None:
        """Forget all jobs. Learned startup times stay."""
        self.stakes.clear()
        self._times.clear()
        self._versions.clear()
        self.preempted.clear()
        self._given_way.clear()
        self._left.clear()
        self._attempts.clear()

    def shift(self, seconds: float) -> None:
        """Move all times by the amount by which the clock was set."""
        for job_id, stake in [*self.stakes.items()]:
            noticed_at = stake.noticed_at + seconds if stake.noticed_at else 0.0
            self.stakes[job_id] = replace(stake, saved_at=stake.saved_at + seconds, noticed_at=noticed_at)
            self._times[job_id] = {stored: at + seconds for stored, at in self._times[job_id].items()}

    def read(self, job: Job) -> None:
        """Update this view from a job as it is stored."""
        if job.state is JobState.QUEUED:
            self._stop_running(job.id)
            if job.attempt:
                self._attempts[job.id] = job.attempt
            if job.preemptions or job.preemption is not None:
                self.preempted.add(job.id)
        elif job.state.is_live:
            self._attempts.pop(job.id, None)
            self._left.pop(job.id, None)
            self.preempted.discard(job.id)
            self._startups.learn(job)
            self._versions[job.id] = job.version
            self.stakes[job.id] = self._stake_of(job)
        else:
            self.remove(job.id)
            return
        if (preemption := _stopped_for(job)) is not None:
            self._given_way[job.id] = preemption
        else:
            self._given_way.pop(job.id, None)

    def observe(self, job: Job) -> None:
        """Update this view from a running job, which may have newer progress.

        An older version of the job is ignored.
        """
        known = self._versions.get(job.id)
        if job.state.is_live and known is not None and job.version >= known:
            self.read(job)

    def remove(self, job_id: int) -> None:
        """Forget a job that no longer waits or runs.

        If the job was stopped for a waiting job, the waiting job keeps its claim.
        """
        self._stop_running(job_id)
        self.preempted.discard(job_id)
        if (preemption := self._given_way.pop(job_id, None)) is not None:
            self._left[job_id] = (preemption.by_job, preemption.by_attempt)
        self._attempts.pop(job_id, None)
        self._startups.forget(job_id)

    def _stop_running(self, job_id: int) -> None:
        self.stakes.pop(job_id)
        self._times.pop(job_id, None)
        self._versions.pop(job_id, None)

    def note(self, claims: Mapping[int, Claim]) -> None:
        """Add the claims that the store has, by stopped job.

        A claim is skipped if the stopped job still waits or runs, since the stopped job itself names the
        waiting job.
        """
        for job_id, claim in claims.items():
            if job_id not in self.stakes and job_id not in self._given_way:
                self._left[job_id] = claim

    def claims(self, waiting: Waiting) -> list[int]:
        """Return the waiting jobs that start before all others; see claims_of."""
        self._left = {job_id: each for job_id, each in self._left.items() if waiting.get(each[0]) is not None}
        return claims_of(self._given_way, self._attempts, waiting, self._left.values())

    def claims_to_note(self, waiting: Waiting) -> dict[int, Claim]:
        """Return the claims that are still valid, by stopped job."""
        named = {job_id: (each.by_job, each.by_attempt) for job_id, each in self._given_way.items()}
        return {
            job_id: (by_job, attempt)
            for job_id, (by_job, attempt) in (self._left | named).items()
            if waiting.get(by_job) is not None and self._attempts.get(by_job, 0) == attempt
        }

    def going_on(self, waiting: Waiting) -> dict[int, GoingOn]:
        """Return the waiting jobs that continue in another size; see going_on_of."""
        return going_on_of(self._given_way, waiting)

    def attempt_of(self, job_id: int) -> int:
        """Return how many attempts a waiting job has made."""
        return self._attempts.get(job_id, 0)

    def _stake_of(self, job: Job) -> Stake:
        admitted = (job.admitted_at or job.submitted_at).timestamp()
        saved = job.progress.saved if job.progress is not None else None
        saved_at = saved.at.timestamp() if saved is not None else admitted
        noticed_at = job.ending.decided_at.timestamp() if job.ending is not None else 0.0
        # Times that were stored before the clock was set are moved. Later times stay.
        known = self._times.get(job.id, {})
        times = {at: known.get(at, at) for at in (admitted, saved_at, noticed_at) if at}
        self._times[job.id] = times
        preemption = _stopped_for(job)
        return Stake(
            attempt=job.attempt,
            saved_at=times[saved_at],
            startup=self._startups.usual(job),
            preemptions=job.preemptions,
            is_leaving=job.ending is not None,
            leaves_for=preemption.by_job if preemption is not None else None,
            goes_on=preemption.trainers if preemption is not None else 0,
            noticed_at=times.get(noticed_at, 0.0),
        )


def _stopped_for(job: Job) -> Preemption | None:
    """Return the preemption of a job that is being stopped or waits again; None if it was not preempted.

    The preemption counts even if another ending has replaced it. But then the job does not continue in
    another size: if it was stopped only for this, return None.
    """
    stop = job.preemption if job.ending is None else job.ending.preemption
    if stop is None or job.preemption is not None:
        return stop
    return replace(stop, trainers=0) if stop.by_job else None


def claims_of(
    given_way: Mapping[int, Preemption],
    attempts: Mapping[int, int],
    waiting: Waiting,
    left: Collection[Claim] = (),
) -> list[int]:
    """Return the waiting jobs that start before all others.

    First come the jobs for which others were stopped, then the other jobs that continue with another number
    of instances. `given_way` has the preemptions of stopped jobs, until they run again. `attempts` has the
    number of attempts that each waiting job has made. `left` has further claims of waiting jobs: the jobs
    that were stopped for them have ended since.
    """
    if not given_way and not left:
        return []
    first = {
        by_job: -gang.priority
        for by_job, attempt in {*left, *((each.by_job, each.by_attempt) for each in given_way.values())}
        if (gang := waiting.get(by_job)) is not None and attempts.get(by_job, 0) == attempt
    }
    going_on = going_on_of(given_way, waiting).keys() - first.keys()
    return [*sorted(first, key=lambda job_id: (first[job_id], job_id)), *sorted(going_on)]


def going_on_of(given_way: Mapping[int, Preemption], waiting: Waiting) -> dict[int, GoingOn]:
    """Return the waiting jobs that continue in another size, with the new size."""
    return {
        job_id: GoingOn(each.trainers, each.flavor)
        for job_id, each in given_way.items()
        if each.trainers and waiting.get(job_id) is not None
    }
