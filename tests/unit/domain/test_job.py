"""Jobs: the machines of their ranks, and attempts that do not count."""

from dataclasses import replace

from job_tracker.domain.allocation import Allocation
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import InstanceSpec
from job_tracker.domain.job import Job, JobState, Preemption, PreemptionReason, new_job
from job_tracker.domain.policies import RetryPolicy
from job_tracker.domain.progress import Progress, Saved, Saves
from tests.support.jobs import NOON, spec


def admitted(roles: dict[str, int], allocation: Allocation) -> Job:
    wanted = spec(roles=roles)
    others = {role: InstanceSpec() for role in roles if role not in ("master", "worker")}
    whole = replace(wanted, group=replace(wanted.group, others=others))
    return new_job(1, whole, NOON).admitted(NOON, allocation)


def test_machines_are_allocated_to_trainers_first_and_then_to_other_roles() -> None:
    nodes = ("t1", "t2", "t3", "p1", "p2", "e1")
    job = admitted({"master": 1, "ps": 2, "worker": 2, "evaluator": 1}, Allocation(nodes=nodes))
    assert job.machine_of_ranks == ("t1", "p1", "p2", "t2", "t3", "e1")


def test_an_elastic_attempt_has_as_many_machines_as_ranks() -> None:
    job = admitted({"master": 1, "worker": 3}, Allocation(trainers=2, nodes=("a", "b")))
    assert job.instances == 2
    assert job.machine_of_ranks == ("a", "b")


def test_an_attempt_without_chosen_machines_has_none() -> None:
    assert admitted({"master": 1}, Allocation()).machine_of_ranks == ()
    assert new_job(1, spec(), NOON).machine_of_ranks == ()


def test_the_checkpoints_of_an_attempt_stay_in_the_history() -> None:
    saved = Saved(500, NOON)
    saves = Saves().after(Saved(400, NOON)).after(saved)
    job = replace(admitted({"master": 1}, Allocation()), progress=Progress(saved=saved, saves=saves))
    again = failed(job, Category.PLACE_TAKEN).queued_again(NOON).admitted(NOON, Allocation())
    assert again.progress is None
    assert [(move.saved, move.saves) for move in again.history if move.saved] == [(saved, saves)]
    assert again.history[-2].attempt == 1


def failed(job: Job, category: Category, *, retryable: bool = True) -> Job:
    why = Diagnosis(category=category, summary="x", resolution="y", retryable=retryable)
    decided = job.failed(why, NOON)
    assert decided.ending is not None
    return decided.ended(decided.ending, NOON)


def test_an_attempt_that_lost_its_place_does_not_count() -> None:
    job = admitted({"master": 1}, Allocation())
    assert job.spec.retry.max_attempts == 1
    for attempt in (2, 3):
        job = failed(job, Category.PLACE_TAKEN)
        assert job.state is JobState.BACKOFF
        job = job.queued_again(NOON).admitted(NOON, Allocation())
        assert job.attempt == attempt
    assert failed(job, Category.NODE_LOST).state is JobState.FAILED


def test_lost_places_leave_a_job_all_attempts_that_it_may_have() -> None:
    job = admitted({"master": 1}, Allocation())
    job = replace(job, spec=replace(job.spec, retry=RetryPolicy(max_attempts=2)))
    for category in (Category.PLACE_TAKEN, Category.NODE_LOST, Category.PLACE_TAKEN):
        job = failed(job, category)
        assert job.state is JobState.BACKOFF, category
        job = job.queued_again(NOON).admitted(NOON, Allocation())
    assert failed(job, Category.NODE_LOST).state is JobState.FAILED


def test_a_job_that_loses_its_place_again_and_again_ends_some_time() -> None:
    job = admitted({"master": 1}, Allocation())
    for _ in range(20):
        job = failed(job, Category.PLACE_TAKEN).queued_again(NOON).admitted(NOON, Allocation())
    assert failed(job, Category.PLACE_TAKEN).state is JobState.FAILED


def test_preemptions_take_away_no_uncounted_attempt_of_a_job_that_loses_its_place() -> None:
    job = admitted({"master": 1}, Allocation())
    for _ in range(20):
        stopped = job.preempted(Preemption(by_job=2, why=PreemptionReason.PRIORITY), NOON)
        assert stopped.ending is not None
        job = stopped.ended(stopped.ending, NOON).admitted(NOON, Allocation())
    assert failed(job, Category.PLACE_TAKEN).state is JobState.BACKOFF
