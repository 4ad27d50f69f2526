"""A stop that takes more than an hour may never end: nothing waits for it any more."""

import math
import random
from dataclasses import replace

import pytest

from job_tracker.scheduling.capacity import FlavorCapacity
from job_tracker.scheduling.explanations import Situation, explain
from job_tracker.scheduling.leaving import SoonGone, Stakes
from job_tracker.scheduling.model import (
    Allocation,
    Expected,
    Flavor,
    Gang,
    Node,
    Part,
    PreemptionReason,
    PreemptionRules,
    Queue,
    Running,
    Stake,
)
from job_tracker.scheduling.running import RunningGangs, running_gangs
from tests.support.fuzzing import TIMES
from tests.support.preempting import NOW, World, gang, random_world

HOUR = 3600.0
AN_HOUR_LATER = pytest.mark.parametrize(("seconds", "is_hung"), [(HOUR - 1, False), (HOUR, True)])


def stopping(*, others: int = 2) -> World:
    """A queue in which job 1 is being stopped for job 3, and job 2 runs beside it."""
    rules = PreemptionRules(by_priority=True)
    world = World(Queue(name="a", preemption=rules), Queue(name="b"), capacity=4 + others)
    world.run(gang(1, count=4), since=1)
    world.run(gang(2, count=others), since=900)
    world.submit(gang(3, count=4, priority=100))
    assert [each.job_id for each in world.turn().preempted] == [1]
    return world


@AN_HOUR_LATER
def test_the_job_for_which_it_was_begun_starts_elsewhere(seconds: float, is_hung: bool) -> None:
    world = stopping(others=4)
    world.end(2)
    world.now += seconds
    assert [each.job_id for each in world.turn().admitted] == ([3] if is_hung else [])


@AN_HOUR_LATER
def test_others_are_stopped_in_its_place_and_it_is_not_stopped_again(seconds: float, is_hung: bool) -> None:
    world = stopping(others=4)
    world.now += seconds
    assert [each.job_id for each in world.turn().preempted] == ([2] if is_hung else [])
    world.leave(lambda job_id: job_id == 2)
    assert [each.job_id for each in world.turn().admitted] == ([3] if is_hung else [])


@AN_HOUR_LATER
def test_no_start_is_promised_for_when_it_ends(seconds: float, is_hung: bool) -> None:
    world = stopping()
    running = world.running[1]
    world.running[1] = replace(running, gang=replace(running.gang, expected=None))
    world.now += seconds
    world.turn()
    assert (world.promises[3].at > world.now + 1) is is_hung


@AN_HOUR_LATER
def test_elastic_jobs_change_their_size_again(seconds: float, is_hung: bool) -> None:
    world = stopping()
    world.end(2)
    world.waiting.remove(3)
    day = Expected(median=86400.0, high=86400.0)
    world.run(replace(gang(4, "b", 2, least=1), expected=day), trainers=1)
    world.now += seconds
    grown = [(each.job_id, each.why) for each in world.turn().preempted]
    assert grown == ([(4, PreemptionReason.GROW)] if is_hung else [])


@AN_HOUR_LATER
def test_users_are_not_asked_to_wait_for_its_end(seconds: float, is_hung: bool) -> None:
    world = stopping()
    world.now += seconds
    text = explain(Situation(world.snapshot(), world.turn(), world.now), 3).remedy.text
    assert (text != "Wait until the job that is being stopped for it has ended.") is is_hung


def test_what_it_leaves_when_it_ends_after_all_is_for_the_job_for_which_it_was_begun() -> None:
    world = stopping()
    world.now += HOUR
    assert world.turn().admitted == ()
    world.leave()
    world.submit(gang(4, "b", count=4))
    assert [each.job_id for each in world.turn().admitted] == [3]


def test_leaving_gangs_are_counted_as_if_all_gangs_were_counted_anew() -> None:
    """The capacity over time is the same, with and without known machines, and if some gangs are late."""
    for seed in range(200 * TIMES):
        chance = random.Random(seed)
        names = [f"m{number}" for number in range(4)]
        nodes = tuple(Node(name=name, capacity={"instances": 8}) for name in names[: chance.choice([0, 3])])
        flavor = Flavor(name="default", capacity={"instances": 8 * len(nodes) or 32}, nodes=nodes)
        running = RunningGangs(_any_run(chance, job_id, names if nodes else []) for job_id in range(20))
        changed = [
            replace(run, gang=replace(run.gang, expected=Expected(median=NOW, high=NOW + 1 - run.started_at)))
            for run in chance.sample(list(running.values()), 5)
        ]
        anew = RunningGangs(running.values())
        for run in changed:
            anew.add(run)
        soon = SoonGone(running, changed)
        assert dict(soon) == dict(anew), seed
        assert sorted(soon.late(NOW)) == sorted(anew.late(NOW)), seed
        overlaid, counted = (FlavorCapacity(flavor, NOW, each) for each in (soon, anew))
        for count in range(1, 33):
            parts, length = (Part(count, {}),), chance.choice([10.0, 1000.0])
            after = NOW + chance.choice([0.0, 1.0, 500.0])
            found = overlaid.find(parts, length, after)
            assert found == counted.find(parts, length, after), (seed, count)
            if chance.random() < 0.1 and found.at < math.inf:
                overlaid.take(parts, found, length)
                counted.take(parts, found, length)


def _any_run(chance: random.Random, job_id: int, names: list[str]) -> Running:
    """Return a gang on one machine or on two. The last machine is not one of the flavor."""
    count = chance.choice([1, 2])
    nodes = tuple(chance.choices(names, k=count)) if names and chance.random() < 0.8 else ()
    length = chance.choice([None, 50.0, 200.0, 1000.0])
    each = Gang(
        job_id=job_id,
        parts=(Part(count, {}),),
        expected=None if length is None else Expected(median=length, high=length),
    )
    return Running(each, Allocation(flavor="default", nodes=nodes), NOW - chance.uniform(0, 400))


def test_the_stakes_of_leaving_gangs_are_found_without_the_others() -> None:
    stays, leaves = Stake(attempt=1, saved_at=NOW), Stake(attempt=1, saved_at=NOW, is_leaving=True)
    stakes = Stakes({1: stays, 2: leaves, 3: leaves})
    assert stakes.leaving == {2: leaves, 3: leaves}
    others = stakes.without([2])
    assert (dict(others), others.leaving, 2 in others) == ({1: stays, 3: leaves}, {3: leaves}, False)
    assert dict(others.without([3])) == {1: stays}
    stakes[3] = stays
    stakes.pop(2)
    stakes.pop(7)
    assert (dict(stakes), stakes.leaving) == ({1: stays, 3: stays}, {})
    stakes.clear()
    assert (len(stakes), stakes.leaving) == (0, {})


def test_random_worlds_come_to_rest_although_some_stops_never_end() -> None:
    found = 0
    for seed in range(100 * TIMES):
        chance, world = random.Random(seed), random_world(seed)
        quiet = 0
        for _ in range(400):
            decided = world.turn()
            _check_capacity(world, seed)
            world.leave(lambda job_id: job_id % 3 > 0)
            world.now += chance.choice([60.0, HOUR])
            leaving = [stake for stake in world.stakes.values() if stake.is_leaving]
            found += any(stake.noticed_at <= world.now - HOUR for stake in leaving)
            quiet = 0 if decided.preempted or decided.admitted else quiet + 1
            if quiet == 20:
                break
        else:
            raise AssertionError(f"seed {seed}: it does not come to rest")
    assert found > 100


def _check_capacity(world: World, seed: int) -> None:
    held = running_gangs(world.running)
    for flavor in world.flavors:
        for name, amount in flavor.capacity.items():
            assert held.held_on(flavor.name).get(name, 0) <= amount, (seed, flavor.name, name)
