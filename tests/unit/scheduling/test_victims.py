"""The measures by which running jobs are compared when some must be stopped: their loss now, and later."""

from dataclasses import replace
from typing import Any

import pytest

from job_tracker.scheduling.model import Allocation, Expected, PreemptionRules, Queue, Running
from job_tracker.scheduling.standing import Standing
from tests.support.preempting import NOW, World, gang


def one_queue(capacity: int, *, by_priority: bool = True) -> World:
    return World(Queue(name="a", preemption=PreemptionRules(by_priority=by_priority)), capacity=capacity)


def stopped(world: World) -> list[int]:
    return [each.job_id for each in world.turn().preempted]


def run_unsaved(world: World, job_id: int, *, for_: float, count: int = 1) -> None:
    """Let a job run that has saved nothing since it began, and needs a day more."""
    expected = Expected(median=for_ + 86_400.0, high=for_ + 86_400.0)
    world.begin(Running(replace(gang(job_id, count=count), expected=expected), Allocation(), NOW - for_))
    world.stake(job_id, since=for_)


@pytest.mark.parametrize(("ran_for", "expected"), [(4000, 1), (5000, 2)])
def test_a_job_without_checkpoints_is_rather_stopped_while_it_is_young(ran_for: float, expected: int) -> None:
    """It has more to lose the longer it runs: a twentieth of the day that it still needs is deducted."""
    world = one_queue(capacity=2)
    run_unsaved(world, 1, for_=ran_for)
    world.run(gang(2), since=100)
    world.submit(gang(3, priority=1))
    assert stopped(world) == [expected]


def test_of_jobs_that_lose_about_the_same_one_is_not_stopped_again_and_again() -> None:
    """Otherwise, max_preemptions soon protects it, and only jobs that lose more can be stopped."""
    world = one_queue(capacity=2)
    world.counts[1] = 3
    world.run(gang(1), since=100, startup=60)
    world.run(gang(2), since=200, startup=60)
    world.submit(gang(3, priority=1))
    assert stopped(world) == [2]


def test_no_more_jobs_are_stopped_because_it_is_good_to_stop_them_early() -> None:
    world = one_queue(capacity=6)
    run_unsaved(world, 1, for_=200, count=3)
    for job_id in (2, 3, 4):
        run_unsaved(world, job_id, for_=100)
    world.submit(gang(5, count=3, priority=1))
    assert stopped(world) == [1]


@pytest.mark.parametrize("by_priority", [True, False], ids=["for a priority", "to shrink"])
@pytest.mark.parametrize("wanted", [1, 100, 700, 1023])
def test_the_size_of_a_large_job_is_found_with_few_looks_at_the_machines(
    wanted: int, by_priority: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    first_fit = Standing.first_fit

    def look(standing: Standing, *what: Any) -> str | None:
        looks.append(what)
        return first_fit(standing, *what)

    monkeypatch.setattr(Standing, "first_fit", look)
    world = one_queue(capacity=1024, by_priority=by_priority)
    elastic = replace(gang(1, count=1024, least=1), expected=Expected(median=1e6, high=1e6))
    world.run(elastic, trainers=1024)
    world.submit(gang(2, count=wanted, priority=1))
    assert [each.trainers for each in world.turn().preempted] == [1024 - wanted]
    assert len(looks) < 80
