"""Attempts that report NaN or infinity."""

import math
from dataclasses import replace

import pytest

from job_tracker.domain.diagnosis import Category
from job_tracker.domain.job import Job, JobState
from job_tracker.domain.policies import NumberPolicy, OnNonfinite, RetryPolicy
from job_tracker.domain.progress import Nonfinite, Progress
from job_tracker.tracking.decisions import Rest, Save, Stop, divergence
from tests.support.decisions import F, R, S, seen, step
from tests.support.jobs import NOON, job_of, spec

FAIL = NumberPolicy(on_nonfinite=OnNonfinite.FAIL)


def reporting(
    metric: str, value: float = math.nan, *, numbers: NumberPolicy = FAIL, retry: RetryPolicy | None = None
) -> Job:
    wanted = spec(instances=2, numbers=numbers, retry=retry or RetryPolicy())
    job = job_of(wanted, state=JobState.RUNNING)
    current = job.observed(seen(R, R).statuses)
    return replace(current, progress=Progress(nonfinite=(Nonfinite(metric, value, 5, NOON, rank=0),)))


def test_an_attempt_fails_with_metric_value_step_rank_and_remedy() -> None:
    decided = step(reporting("loss"), seen(R, R))
    assert isinstance(decided, Save)
    ending = decided.job.ending
    assert ending is not None
    assert ending.state is JobState.FAILED
    why = ending.diagnosis
    assert why is not None
    assert (why.category, why.rank, why.retryable) == (Category.DIVERGED, 0, False)
    assert why.summary == "The training diverged: 'loss' is NaN at step 5 on rank 0."
    assert "learning rate" in why.resolution
    # The ending is written before the group is stopped, and stays.
    assert step(decided.job, seen(R, R)) == Stop(ending)


def test_the_diagnosis_is_found_again_from_the_stored_job_alone() -> None:
    job = reporting("train/Loss", -math.inf)
    first = divergence(job)
    assert first is not None
    assert "'train/Loss' is -infinity at step 5" in first.summary
    assert divergence(job) == first
    assert step(job, seen(R, R), launched=False) == step(job, seen(R, R))


@pytest.mark.parametrize(
    "job",
    [
        reporting("loss", numbers=NumberPolicy()),
        reporting("grad_norm"),
        reporting("loss", numbers=replace(FAIL, metrics=("val/*",))),
    ],
    ids=["flag", "another metric", "other patterns"],
)
def test_other_policies_and_metrics_let_it_go_on(job: Job) -> None:
    assert step(job, seen(R, R)) == Rest()


def test_another_attempt_follows_only_if_the_job_retries_this_category() -> None:
    retry = RetryPolicy(max_attempts=2, retry_on=(Category.DIVERGED,))
    decided = step(reporting("loss", retry=retry), seen(R, R))
    assert isinstance(decided, Save)
    assert decided.job.ending is not None
    assert decided.job.ending.state is JobState.BACKOFF


def test_a_rank_that_crashes_because_of_the_numbers_is_not_the_cause() -> None:
    for observation in (seen(R, F), seen(S, R)):
        decided = step(reporting("loss"), observation)
        assert isinstance(decided, Save)
        assert decided.job.diagnosis is not None
        assert decided.job.diagnosis.category is Category.DIVERGED


def test_a_pattern_with_brackets_names_a_metric_with_brackets() -> None:
    policy = replace(FAIL, metrics=("loss[*]",))
    assert policy.forbids("Loss[0]")
    assert not policy.forbids("loss*")


def test_a_hostile_pattern_takes_bounded_time() -> None:
    # With a pattern that goes back at each *, this would take years.
    policy = replace(FAIL, metrics=("*a" * 60 + "b",) * 16)
    assert not policy.forbids("a" * 128)
