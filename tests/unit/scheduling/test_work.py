"""The work ahead of waiting jobs."""

import random

import pytest

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
from job_tracker.scheduling.work import WaitingWork, ahead

FLAVORS = (Flavor(name="default", capacity={INSTANCES: 10}),)


def gang(job_id: int, size: int, seconds: float | None, priority: int = 0, *, learned: bool = False) -> Gang:
    expected = None if seconds is None else Expected(median=seconds, high=seconds, is_learned=learned)
    return Gang(job_id=job_id, parts=(Part(size, {INSTANCES: 1}),), expected=expected, priority=priority)


def snapshot(*waiting: Gang, running: tuple[Running, ...] = ()) -> Snapshot:
    return Snapshot(
        flavors=FLAVORS,
        queues={},
        waiting=WaitingGangs(waiting),
        running={each.gang.job_id: each for each in running},
    )


def seconds(seen: Snapshot, now: float, *job_ids: int) -> dict[int, float]:
    return {job_id: each.seconds for job_id, each in ahead(seen, now, job_ids).items()}


def test_the_work_ahead_is_what_runs_and_what_goes_first() -> None:
    running = Running(gang(1, 5, 100), Allocation(), started_at=20)
    seen = snapshot(gang(2, 2, 50), gang(3, 1, 70, priority=1), gang(4, 9, 9), running=(running,))
    assert seconds(seen, 40, 2, 4, 99) == {2: (5 * 80 + 70) / 10, 4: (5 * 80 + 70 + 100) / 10}


def test_a_job_past_its_expected_end_still_has_work_left() -> None:
    running = Running(gang(1, 5, 100), Allocation(), started_at=0)
    assert seconds(snapshot(gang(2, 1, 1), running=(running,)), 400, 2) == {2: 5 * 200 / 10}


def test_the_work_ahead_knows_whether_run_times_were_learned_or_assumed() -> None:
    seen = snapshot(gang(1, 1, 5), gang(2, 1, 5, learned=True), gang(3, 1, None), gang(4, 1, 5))
    found = ahead(seen, 0.0, [1, 2, 3, 4])
    assert [(found[n].is_learned, found[n].is_assumed) for n in (1, 2, 3, 4)] == [
        (False, False),
        (False, False),
        (True, False),
        (True, True),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_the_work_ahead_of_new_jobs_is_the_same_whether_counted_or_kept(seed: int) -> None:
    chance = random.Random(seed)
    kept, gangs = WaitingWork(), WaitingGangs()
    for job_id in range(60):
        new = gang(job_id, chance.randint(1, 4), chance.choice([None, 10.0, 1000.0]), chance.randint(-1, 1))
        gangs.add(new)
        kept.add(new)
    for job_id in chance.sample(range(40), 20):
        gone = gangs.get(job_id)
        assert gone is not None
        gangs.remove(job_id)
        kept.remove(gone)
    running = {
        n: Running(gang(n, 2, chance.choice([None, 50.0])), Allocation(), 0.0) for n in range(100, 105)
    }
    seen = Snapshot(flavors=FLAVORS, queues={}, waiting=gangs, running=running)
    last = [each for job_id in range(55, 60) if (each := gangs.get(job_id)) is not None]
    # These jobs are the last of their priorities. They include all jobs that were submitted later.
    assert kept.ahead_of_last(last, running.values(), FLAVORS, 20.0) == pytest.approx(
        seconds(seen, 20.0, *range(55, 60))
    )


def test_without_capacity_there_is_no_work_ahead() -> None:
    kept = WaitingWork()
    kept.add(gang(1, 1, 5))
    assert kept.ahead_of_last([gang(1, 1, 5)], [], [], 0.0) == {}
