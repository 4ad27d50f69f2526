"""When running jobs are stopped: their loss against the wait, and the search for their sizes."""

from dataclasses import replace
from typing import Any

import pytest

from job_tracker.scheduling.model import Allocation, Expected, Gang, Limit, PreemptionRules, Queue, Running
from job_tracker.scheduling.standing import Standing
from tests.support.preempting import NOW, World, gang


def one_queue(capacity: int, *, by_priority: bool = True) -> World:
    return World(Queue(name="a", preemption=PreemptionRules(by_priority=by_priority)), capacity=capacity)


def stopped(world: World) -> list[int]:
    return [each.job_id for each in world.turn().preempted]


def run_unsaved(world: World, each: Gang, *, left: float | None) -> None:
    """Let a gang run that has saved nothing for 3,000 seconds. None: its remaining time is unknown."""
    expected = None if left is None else Expected(median=3000.0 + left, high=3000.0 + left)
    world.begin(Running(replace(each, expected=expected), Allocation(), NOW - 3000.0))
    world.stake(each.job_id, since=3000.0)


@pytest.mark.parametrize(("left", "expected"), [(999, []), (1001, [1]), (None, [1])])
def test_a_job_of_a_higher_priority_waits_if_stopping_others_loses_three_times_more(
    left: float | None, expected: list[int]
) -> None:
    """Without a promised start, it does not wait."""
    world = one_queue(capacity=1)
    run_unsaved(world, gang(1), left=left)
    world.submit(gang(2, priority=1))
    assert stopped(world) == expected


def test_the_wait_counts_for_each_instance_that_waits() -> None:
    world = one_queue(capacity=2)
    run_unsaved(world, gang(1), left=600)
    world.submit(gang(2, count=2, priority=1))
    assert stopped(world) == [1], "3,000 are less than 3 times 2 times 600"


def test_a_job_that_waits_is_not_passed_by_jobs_behind_it_that_stop_others() -> None:
    world = one_queue(capacity=3)
    run_unsaved(world, gang(1, count=2), left=500)
    run_unsaved(world, gang(2), left=2000)
    world.submit(gang(3, count=2, priority=2), gang(4, priority=1))
    assert stopped(world) == []


def test_a_job_that_waits_stops_others_once_they_have_saved() -> None:
    world = one_queue(capacity=1)
    run_unsaved(world, gang(1), left=500)
    world.submit(gang(2, priority=1))
    assert stopped(world) == []
    world.stake(1, since=10)
    assert stopped(world) == [1]


def test_a_job_that_runs_longer_than_planned_is_stopped_in_the_end() -> None:
    """The promised start moves, so the wait counts for more."""
    world = one_queue(capacity=1)
    run_unsaved(world, gang(1), left=500)
    world.submit(gang(2, priority=1))
    assert stopped(world) == []
    world.now += 600.0
    assert stopped(world) == [1]


def test_a_quota_is_taken_back_however_much_is_lost() -> None:
    limits = {"default": {"instances": Limit(nominal=1)}}
    world = World(Queue(name="a", limits=limits), Queue(name="b"), capacity=1)
    run_unsaved(world, gang(1, "b"), left=1)
    world.submit(gang(2, "a"))
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
