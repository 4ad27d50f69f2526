"""Metrics of jobs: how long they wait, launch and run, how they end, and why they fail.

A replica counts only the changes that it writes itself, so sums over all replicas are correct.
"""

from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Histogram

from job_tracker.domain.diagnosis import Category
from job_tracker.domain.eviction import EvictionReason
from job_tracker.domain.job import Job, JobState, PreemptionReason

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_WAIT = (1, 5, 15, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, 12 * _HOUR, _DAY, 3 * _DAY, 7 * _DAY)
_LAUNCH = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR)
_RUN = (1, 10, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, 12 * _HOUR, _DAY, 3 * _DAY, 7 * _DAY)
_ENDS = [state for state in JobState if state.is_terminal]


class JobMetrics:
    """Counts the state changes of jobs, and measures how long jobs wait, launch and run."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._wait = Histogram(
            "training_service_queue_wait_seconds",
            "Time from the submission of a job to its first launch",
            buckets=_WAIT,
            registry=registry,
        )
        self._launch = Histogram(
            "training_service_launch_seconds",
            "Time from the launch of an attempt until its master ran",
            buckets=_LAUNCH,
            registry=registry,
        )
        self._run = Histogram(
            "training_service_run_seconds",
            "Time from the start of an attempt's master until its group was removed",
            ["outcome"],
            buckets=_RUN,
            registry=registry,
        )
        self._attempts = Counter(
            "training_service_attempts", "Attempts that were launched", registry=registry
        )
        self._ended = Counter(
            "training_service_jobs_ended", "Jobs that ended", ["outcome"], registry=registry
        )
        self._failures = Counter(
            "training_service_failures",
            "Failed attempts, and jobs that failed without an attempt, by category of the diagnosis",
            ["category"],
            registry=registry,
        )
        self._exhausted = Counter(
            "training_service_attempts_exhausted",
            "Jobs that failed after more than one attempt, with a failure that allows a retry",
            registry=registry,
        )
        self._restarts = Counter(
            "training_service_rank_restarts",
            "Restarts of lost ranks of elastic groups within an attempt",
            registry=registry,
        )
        self._preemptions = Counter(
            "training_service_preemptions",
            "Attempts that were stopped for other jobs, or to continue with another number of instances",
            ["reason"],
            registry=registry,
        )
        self._evictions = Counter(
            "training_service_evictions",
            "Attempts that were evicted: stopped from outside the service, with a grace period",
            ["reason"],
            registry=registry,
        )
        # Counters start at 0, so that the first event of each kind is an increase.
        for state in _ENDS:
            self._ended.labels(state)
        for category in Category:
            self._failures.labels(category)
        for reason in PreemptionReason:
            self._preemptions.labels(reason)
        for cause in EvictionReason:
            self._evictions.labels(cause)

    def saved(self, before: Job, after: Job) -> None:
        if after.state is before.state:
            if after.attempt == before.attempt:
                self._restarts.inc(max(0, _restarts(after) - _restarts(before)))
            return
        now = datetime.now(UTC)
        if after.state is JobState.LAUNCHING:
            self._attempts.inc()
            if after.attempt == 1:
                self._wait.observe(_seconds(before.submitted_at, now))
        elif after.state is JobState.RUNNING:
            if before.history:  # it is empty if an earlier version of the service launched the job
                self._launch.observe(_seconds(before.history[-1].at, now))
        elif before.state is JobState.RUNNING and before.started_at is not None:
            self._run.labels(_outcome(after)).observe(_seconds(before.started_at, now))
        if before.state.is_live and after.preemption is not None:
            self._preemptions.labels(after.preemption.why).inc()
        if before.state.is_live and after.state is JobState.QUEUED and (by := after.history[-1].eviction):
            self._evictions.labels(by.why).inc()
        if after.state.is_terminal:
            self._ended.labels(after.state).inc()
        if after.state in (JobState.FAILED, JobState.BACKOFF):
            self._failed(after)

    def _failed(self, job: Job) -> None:
        failure = job.last_failure
        assert failure is not None
        self._failures.labels(failure.category).inc()
        was_worth_a_retry = job.counted_attempts > 1 and job.spec.retry.allows(1, failure)
        if job.state is JobState.FAILED and was_worth_a_retry:
            self._exhausted.inc()


def _restarts(job: Job) -> int:
    return sum(rank.restarts for rank in job.ranks)


def _outcome(job: Job) -> str:
    stopped = "evicted" if job.history and job.history[-1].eviction else "preempted"
    others = {JobState.BACKOFF: "retried", JobState.QUEUED: stopped}
    return others.get(job.state, str(job.state))


def _seconds(since: datetime, until: datetime) -> float:
    """Return the seconds between two times; 0 if the clock was set back."""
    return max(0.0, (until - since).total_seconds())
