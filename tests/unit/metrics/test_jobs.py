"""Counters of jobs that change state."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.eviction import Eviction, EvictionReason
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import Ending, Job, JobState, Preemption, PreemptionReason, new_job
from job_tracker.domain.policies import RetryPolicy
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE
from training_service.metrics import Metrics

LOST = Diagnosis(category=Category.NODE_LOST, summary="Node a is gone.", resolution="Wait.", retryable=True)
BROKEN = Diagnosis(category=Category.CRASHED, summary="Exited with 1.", resolution="Mend it.")


class History:
    """The history of a job, with each change passed to the metrics."""

    def __init__(self, max_attempts: int = 2, waited: timedelta = timedelta(0)) -> None:
        self.metrics = Metrics()
        self.at = datetime.now(UTC)
        retry = RetryPolicy(max_attempts=max_attempts)
        self.job = new_job(1, spec(retry=retry), self.at - waited)

    def moves(self, change: Callable[[Job], Job]) -> None:
        before, self.job = self.job, change(self.job)
        self.metrics.observe_job(before, self.job)

    def launches(self) -> None:
        self.moves(lambda job: job.admitted(self.at))

    def runs(self, for_seconds: float = 0.0) -> None:
        self.moves(lambda job: job.running(self.at - timedelta(seconds=for_seconds)))

    def fails(self, why: Diagnosis) -> None:
        self.moves(lambda job: job.failed(why, self.at))
        self.ends()

    def ends(self, state: JobState | None = None) -> None:
        ending = self.job.ending if state is None else Ending(state, self.at)
        assert ending is not None
        self.moves(lambda job: job.ended(ending, self.at))

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"training_service_{name}", labels)


def test_the_wait_in_the_queue_is_measured_at_the_first_launch_only() -> None:
    history = History(waited=timedelta(hours=1))
    history.launches()
    assert history.value("queue_wait_seconds_sum") == pytest.approx(3600, abs=PATIENCE)
    history.fails(LOST)
    history.moves(lambda job: job.queued_again(history.at))
    history.launches()
    assert history.value("queue_wait_seconds_count") == 1
    assert history.value("attempts_total") == 2


def test_a_launch_is_measured_until_the_master_runs() -> None:
    history = History()
    history.launches()
    assert history.value("launch_seconds_count") == 0
    history.runs()
    assert history.value("launch_seconds_count") == 1


def test_a_launch_begun_by_another_replica_is_measured_from_its_beginning() -> None:
    history = History()
    history.job = history.job.admitted(history.at - timedelta(hours=1))
    history.runs()
    assert history.value("launch_seconds_sum") == pytest.approx(3600, abs=PATIENCE)


def test_a_launch_without_a_stored_time_is_not_measured() -> None:
    history = History()
    history.job = replace(history.job.admitted(history.at), history=())
    history.runs()
    assert history.value("launch_seconds_count") == 0


def test_a_run_is_measured_from_its_beginning_also_after_a_restart_of_the_service() -> None:
    for state, outcome in ((JobState.SUCCEEDED, "succeeded"), (JobState.CANCELLED, "cancelled")):
        history = History()
        history.launches()
        history.runs(for_seconds=3600)
        history.ends(state)
        assert history.value("run_seconds_sum", outcome=outcome) == pytest.approx(3600, abs=PATIENCE)
        assert history.value("jobs_ended_total", outcome=outcome) == 1
        assert history.value("jobs_ended_total", outcome="failed") == 0


def test_a_clock_that_was_set_back_gives_no_negative_times() -> None:
    history = History(waited=timedelta(hours=-1))
    history.launches()
    history.runs(for_seconds=-3600)
    history.ends(JobState.SUCCEEDED)
    assert history.value("queue_wait_seconds_sum") == 0
    assert history.value("run_seconds_sum", outcome="succeeded") == 0


def test_failures_are_counted_by_category_for_each_attempt() -> None:
    history = History()
    history.launches()
    history.runs()
    history.fails(LOST)
    assert history.value("run_seconds_count", outcome="retried") == 1
    assert history.value("failures_total", category="node_lost") == 1
    assert history.value("jobs_ended_total", outcome="failed") == 0
    history.moves(lambda job: job.queued_again(history.at))
    history.launches()
    history.fails(LOST)
    assert history.value("failures_total", category="node_lost") == 2
    assert history.value("jobs_ended_total", outcome="failed") == 1


def test_attempts_are_exhausted_only_if_another_would_have_followed() -> None:
    given_up, broken, never_tried_again = History(), History(), History(max_attempts=1)
    for history, last in ((given_up, LOST), (broken, BROKEN)):
        history.launches()
        history.fails(LOST)
        history.moves(lambda job, history=history: job.queued_again(history.at))  # type: ignore[misc]
        history.launches()
        history.fails(last)
    never_tried_again.launches()
    never_tried_again.fails(LOST)
    counts = [history.value("attempts_exhausted_total") for history in (given_up, broken, never_tried_again)]
    assert counts == [1, 0, 0]


def test_every_category_starts_at_zero() -> None:
    history = History()
    assert [history.value("failures_total", category=category) for category in Category] == [0] * len(
        Category
    )


def test_changes_of_ranks_do_not_count() -> None:
    history = History()
    history.launches()
    history.runs()
    history.moves(lambda job: job.observed(()))
    history.moves(lambda job: job.decided(Ending(JobState.SUCCEEDED, history.at)))
    assert history.value("run_seconds_count", outcome="succeeded") is None


def test_restarts_of_ranks_are_counted_within_their_attempt() -> None:
    history = History()
    history.launches()
    history.runs()
    history.moves(lambda job: job.observed((RankStatus(0, Phase.RUNNING),)))
    assert history.value("rank_restarts_total") == 0
    history.moves(lambda job: job.restarting(0, LOST, NOON))
    history.moves(lambda job: job.restarting(0, LOST, NOON))
    assert history.value("rank_restarts_total") == 2
    history.fails(LOST)
    assert history.value("rank_restarts_total") == 2


def test_a_preempted_attempt_is_neither_a_failure_nor_an_end() -> None:
    history = History()
    history.launches()
    history.runs()
    why = Preemption(by_job=2, why=PreemptionReason.RECLAIM)
    history.moves(lambda job: job.preempted(why, history.at))
    history.moves(lambda job: job.ended(job.ending, history.at))  # type: ignore[arg-type]
    assert history.value("preemptions_total", reason="reclaim") == 1
    assert history.value("preemptions_total", reason="priority") == 0
    assert history.value("run_seconds_count", outcome="preempted") == 1
    assert history.value("failures_total", category="node_lost") == 0


def test_an_evicted_attempt_is_neither_a_failure_nor_an_end() -> None:
    history = History()
    history.launches()
    history.runs()
    drain = Eviction(why=EvictionReason.DRAINED, at=history.at)
    history.moves(lambda job: job.evicted(drain, history.at))
    history.moves(lambda job: job.ended(job.ending, history.at))  # type: ignore[arg-type]
    history.launches()
    assert history.value("evictions_total", reason="drained") == 1
    assert history.value("evictions_total", reason="deleted") == 0
    assert history.value("run_seconds_count", outcome="evicted") == 1
    assert history.value("failures_total", category="evicted") == 0
