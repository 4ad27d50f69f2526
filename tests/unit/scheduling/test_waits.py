"""Expected waits: the work ahead, and how earlier waits turned out."""

import random

from job_tracker.scheduling.model import (
    INSTANCES,
    Allocation,
    Expected,
    Flavor,
    Gang,
    Part,
    Running,
    Snapshot,
)
from job_tracker.scheduling.waiting import WaitingGangs
from job_tracker.scheduling.waits import WaitTimes, ahead


def gang(job_id: int, size: int, seconds: float, priority: int = 0) -> Gang:
    expected = Expected(median=seconds, high=seconds)
    return Gang(job_id=job_id, parts=(Part(size, {INSTANCES: 1}),), expected=expected, priority=priority)


def snapshot(*waiting: Gang, running: tuple[Running, ...] = ()) -> Snapshot:
    gangs = WaitingGangs()
    for each in waiting:
        gangs.add(each)
    return Snapshot(
        flavors=(Flavor(name="default", capacity={INSTANCES: 10}),),
        queues={},
        waiting=gangs,
        running={each.gang.job_id: each for each in running},
    )


def test_the_work_ahead_is_what_runs_and_what_goes_first() -> None:
    running = Running(gang(1, 5, 100), Allocation(), started_at=20)
    seen = snapshot(gang(2, 2, 50), gang(3, 1, 70, priority=1), gang(4, 9, 9), running=(running,))
    assert ahead(seen, 40, [2, 4, 99]) == {2: (5 * 80 + 70) / 10, 4: (5 * 80 + 70 + 100) / 10}


def test_a_job_past_its_expected_end_still_has_work_left() -> None:
    running = Running(gang(1, 5, 100), Allocation(), started_at=0)
    assert ahead(snapshot(gang(2, 1, 1), running=(running,)), 400, [2]) == {2: 5 * 200 / 10}


def test_waits_are_learned_as_factors_of_the_work_ahead() -> None:
    times, chance = WaitTimes(), random.Random(1)
    for job_id in range(400):
        begin = job_id * 10_000.0
        times.submitted(job_id, begin, 1000.0)
        times.started(job_id, begin + 1000.0 * chance.uniform(2, 4))
    wait = times.expected(400 * 10_000.0, 1000.0)
    assert 2500 < wait.median < 3500
    assert 3500 < wait.high < 4000
    assert times.expected(400 * 10_000.0, 500.0).high == wait.high / 2


def test_jobs_that_still_wait_count_as_longer_waits() -> None:
    times = WaitTimes()
    for job_id in range(400):
        times.submitted(job_id, 0.0, 1000.0)
    for job_id in range(100):
        times.started(job_id, 1000.0)
    assert times.expected(20_000.0, 1000.0).median > 1000.0
    for job_id in range(100, 400):
        times.forget(job_id)
    assert times.expected(20_000.0, 1000.0).median == 1000.0


def test_memory_is_bounded() -> None:
    times = WaitTimes(kept=3)
    for job_id in range(100):
        times.submitted(job_id, 0.0, 100.0)
    times.started(0, 50.0)
    assert len(times._jobs) == 3


def test_a_clock_that_is_set_back_spoils_nothing() -> None:
    times = WaitTimes()
    times.submitted(1, 1000.0, 100.0)
    times.started(1, 10.0)
    times.submitted(2, 1000.0, 100.0)
    assert times.expected(10.0, 100.0).high >= times.expected(10.0, 100.0).median >= 0
