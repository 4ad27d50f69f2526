"""What the tracker does next: every state against everything that can be seen."""

from datetime import timedelta

import pytest

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.decisions import Launch, Rest, Save, Stop, next_step
from job_tracker.diagnosis import Category, Diagnosis
from job_tracker.errors import IllegalMove
from job_tracker.model import TRANSITIONS, Ending, Job, JobState, Phase, RankStatus
from tests.support.jobs import NOON, job

WHY = Diagnosis(category=Category.CRASHED, summary="It broke.", resolution="Mend it.", rank=1)
P, R, S, F, X = Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED


def seen(*phases: Phase) -> Observation:
    return Observation(
        tuple(RankObservation(RankStatus(n, p), WHY if p is F else None) for n, p in enumerate(phases))
    )


def step(current: Job, observation: Observation | None, *, launched: bool = True, after: float = 0) -> object:
    return next_step(
        current,
        observation,
        launched=launched,
        now=NOON + timedelta(seconds=after),
        finish_grace=timedelta(seconds=30),
    )


LAUNCHING, RUNNING = job(instances=2), job(instances=2, state=JobState.RUNNING)


@pytest.mark.parametrize("observation", [None, seen(P, P), seen(R, R), seen(R, F)])
def test_a_tracker_that_does_not_know_of_a_launch_launches(observation: Observation | None) -> None:
    assert step(LAUNCHING, observation, launched=False) == Launch()


@pytest.mark.parametrize("current", [LAUNCHING, RUNNING])
@pytest.mark.parametrize("observation", [None, seen(X, R), seen(R, X)])
def test_a_group_that_is_gone_fails_the_job(current: Job, observation: Observation | None) -> None:
    decided = step(current, observation)
    assert isinstance(decided, Save)
    assert decided.job.diagnosis is not None
    assert decided.job.diagnosis.category is Category.GROUP_VANISHED


@pytest.mark.parametrize("current", [LAUNCHING, RUNNING])
@pytest.mark.parametrize("observation", [seen(R, F), seen(S, F), seen(F, F), seen(P, F)])
def test_the_failure_of_any_rank_decides(current: Job, observation: Observation) -> None:
    decided = step(current, observation)
    expected = current.observed(observation.statuses).decided(Ending(JobState.FAILED, NOON, WHY))
    assert decided == Save(expected)


@pytest.mark.parametrize("observation", [seen(R, P), seen(R, R), seen(S, R)])
def test_a_job_runs_from_the_moment_its_master_does(observation: Observation) -> None:
    assert step(LAUNCHING, observation) == Save(LAUNCHING.observed(observation.statuses).running(NOON))


def test_a_pending_master_keeps_the_job_launching() -> None:
    pending = LAUNCHING.observed(seen(P, R).statuses)
    assert step(LAUNCHING, seen(P, R)) == Save(pending)
    assert step(pending, seen(P, R)) == Rest()


def test_the_success_of_the_master_decides() -> None:
    expected = RUNNING.observed(seen(S, R).statuses).decided(Ending(JobState.SUCCEEDED, NOON))
    assert step(RUNNING, seen(S, R)) == Save(expected)


def test_workers_have_their_time_after_a_success_only() -> None:
    succeeded = RUNNING.decided(ending := Ending(JobState.SUCCEEDED, NOON))
    assert step(succeeded, seen(S, R), after=10) == Rest(at_most=timedelta(seconds=20))
    assert step(succeeded, seen(S, R), after=30) == Stop(ending)
    assert step(succeeded, seen(S, S), after=10) == Stop(ending)
    assert step(succeeded, None) == Stop(ending)
    for state in (JobState.FAILED, JobState.CANCELLED):
        ending = Ending(state, NOON)
        assert step(RUNNING.decided(ending), seen(S, R)) == Stop(ending)


@pytest.mark.parametrize("source", JobState)
@pytest.mark.parametrize("target", JobState)
def test_a_job_refuses_every_move_that_the_table_lacks(source: JobState, target: JobState) -> None:
    current, ending = job(state=source), Ending(target, NOON)
    if target in TRANSITIONS[source]:
        assert current.ended(ending, NOON).state is target
    else:
        with pytest.raises(IllegalMove):
            current.ended(ending, NOON)


def test_a_decision_is_not_taken_twice() -> None:
    decided = RUNNING.decided(Ending(JobState.SUCCEEDED, NOON))
    with pytest.raises(IllegalMove):
        decided.decided(Ending(JobState.CANCELLED, NOON))
