"""Learning from jobs: their run times, and how long they wait."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import GroupSpec, InstanceSpec
from job_tracker.domain.job import Ending, Job, JobState, Preemption, PreemptionReason, new_job
from job_tracker.domain.job_spec import JobSpec, Program
from job_tracker.domain.policies import Deadlines, RetryPolicy
from job_tracker.scheduling.board import Board
from job_tracker.scheduling.experience import Experience, kind_of, run_times
from job_tracker.scheduling.model import Expected, Flavor, Queue
from job_tracker.store.sqlite import SqliteStore
from tests.support.jobs import NOON, spec

POOL = ((Flavor(name="default", capacity={"instances": 4}),), {"default": Queue(name="default")})
CRASH = Diagnosis(category=Category.CRASHED, summary="It crashed.", resolution="Mend it.")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = await SqliteStore.open(tmp_path / "jobs.db")
    yield made
    await made.close()


def after(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def ran(job: Job, seconds: float, state: JobState = JobState.SUCCEEDED) -> Job:
    """Return the job after an attempt that held its machines for this time."""
    since = job.history[-1].at
    running = job.admitted(since).running(since + after(1))
    diagnosis = CRASH if state in (JobState.FAILED, JobState.BACKOFF) else None
    end = since + after(seconds)
    return running.ended(Ending(state, end, diagnosis), end)


async def ended(store: SqliteStore, wanted: JobSpec, seconds: float) -> None:
    job = await store.submit(wanted, NOON, None, 10_000)
    job = await store.update(job.admitted(NOON))
    job = await store.update(job.running(NOON))
    end = NOON + after(seconds)
    await store.update(job.ended(Ending(JobState.SUCCEEDED, end), end))


def test_each_attempt_that_has_run_counts_from_its_admission() -> None:
    job = new_job(1, spec(retry=RetryPolicy(max_attempts=3)), NOON)
    job = ran(job, 30, JobState.BACKOFF).queued_again(NOON + after(60))
    job = job.admitted(NOON + after(70))  # the next attempt never runs
    job = job.ended(Ending(JobState.BACKOFF, NOON + after(80), CRASH), NOON + after(80))
    job = ran(job.queued_again(NOON + after(90)), 200, JobState.CANCELLED)
    assert list(run_times(job.history)) == [30, 200]


def test_a_stop_for_another_job_does_not_count_the_attempt_before_again() -> None:
    job = ran(new_job(1, spec(retry=RetryPolicy(max_attempts=3)), NOON), 30, JobState.BACKOFF)
    experience = Experience()
    experience.ended(job)
    running = job.queued_again(NOON + after(60)).admitted(NOON + after(70)).running(NOON + after(71))
    why = Preemption(by_job=2, why=PreemptionReason.PRIORITY)
    at = NOON + after(100)
    stopped = running.preempted(why, at)
    assert stopped.ending is not None
    for _ in range(5):
        experience.ended(stopped.ended(stopped.ending, at))
    assert experience.expected(spec()) is None, "one run is too few"


def test_an_attempt_that_never_ran_does_not_count_the_attempt_before_again() -> None:
    job = ran(new_job(1, spec(retry=RetryPolicy(max_attempts=3)), NOON), 30, JobState.BACKOFF)
    experience = Experience()
    experience.ended(job)
    launching = job.queued_again(NOON + after(60)).admitted(NOON + after(70))
    at = NOON + after(80)
    for _ in range(5):
        experience.ended(launching.ended(Ending(JobState.FAILED, at, CRASH), at))
    assert experience.expected(spec()) is None, "one run is too few"


def test_a_job_that_never_ran_has_no_run_times() -> None:
    job = new_job(1, spec(), NOON)
    assert list(run_times(job.history)) == []
    assert list(run_times(job.ended(Ending(JobState.CANCELLED, NOON), NOON).history)) == []


def test_programs_are_alike_if_they_have_the_same_project_and_command() -> None:
    def program(project: str, *command: str) -> JobSpec:
        group = GroupSpec(roles={"master": 1}, trainers=InstanceSpec(command=command))
        return replace(spec(project=project, program=Program(tree="t")), group=group)

    first = kind_of(program("vision", "python", "train.py", "--lr", "1"))
    assert first.keys[-1] == kind_of(program("vision", "python", "train.py", "--lr", "2")).keys[-1]
    assert first != kind_of(program("vision", "python", "other.py"))
    assert first.keys[-1] != kind_of(program("speech", "python", "train.py", "--lr", "1")).keys[-1]


def test_what_the_caller_says_goes_on_top_of_what_was_learned() -> None:
    experience = Experience()
    for number in range(20):
        experience.ended(ran(new_job(number, spec(), NOON), 100))
    assert experience.expected(spec()) == Expected(median=100, high=100)
    assert experience.expected(spec(expected=after(30))) == Expected(median=30, high=100)
    assert experience.expected(spec(deadlines=Deadlines(run=after(50)))) == Expected(median=50, high=50)
    other = spec(algorithm="other", expected=after(30))
    assert experience.expected(other) == Expected(median=30, high=30)
    assert experience.expected(spec(algorithm="other")) is None


async def test_a_new_leader_learns_from_the_jobs_that_ended_last(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job_tracker.scheduling.experience.MOST_HISTORY", 6)
    monkeypatch.setattr("job_tracker.scheduling.experience._PAGE", 4)
    for seconds in (1000, 1000, 10, 10, 10, 10, 10, 10):
        await ended(store, spec(), seconds)
    await store.submit(spec(), NOON, None, 10)
    experience = Experience()
    await experience.read(store)
    assert experience.expected(spec()) == Expected(median=10, high=10)


def test_waiting_jobs_of_unknown_duration_have_one_as_soon_as_it_is_learned() -> None:
    board = Board(lambda: POOL, half_life=100.0)
    now = NOON.timestamp()
    for number in range(1, 4):
        board.read(new_job(number, spec(), NOON), now)
    board.read(new_job(4, spec(algorithm="other"), NOON), now)
    board.remove(2, now)
    for number in range(10, 13):
        board.ended(ran(new_job(number, spec(), NOON), 60))
    waiting = [board.waiting.get(number) for number in (1, 3, 4)]
    assert [gang.expected for gang in waiting if gang] == [
        Expected(median=60, high=60),
        Expected(median=60, high=60),
        None,
    ]


def test_waits_are_learned_from_the_jobs_that_were_submitted_since_the_board_follows_the_store() -> None:
    board = Board(lambda: POOL, half_life=100.0)
    board.clear((NOON + after(10)).timestamp())
    old = new_job(1, spec(), NOON)
    new = new_job(2, spec(), NOON + after(20))
    gone = new_job(3, spec(), NOON + after(20))
    for job in (old, new, gone):
        board.read(job, job.submitted_at.timestamp())
    board.learn_waits({}, (NOON + after(20)).timestamp())
    assert board.experience.waits.waiting() == [2, 3]
    board.read(new.admitted(NOON + after(320)), (NOON + after(320)).timestamp())
    board.remove(3, (NOON + after(320)).timestamp())
    board.learn_waits({}, (NOON + after(320)).timestamp())
    assert board.experience.waits.waiting() == []
    assert board.experience.waits.rule(NOON.timestamp()).last == 300
