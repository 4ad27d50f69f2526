"""Rules that hold in any state. `scripts/fuzz 100 -k any_state` tries ten thousand states for each rule."""

import math
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_tracker.scheduling.checks import fits_ever, flavors_for
from job_tracker.scheduling.lengths import planned_end, planned_length
from job_tracker.scheduling.model import Flavor, Gang, Part, Plan, Queue, Running, Snapshot
from job_tracker.scheduling.planner import plan
from job_tracker.scheduling.running import RunningGangs
from job_tracker.scheduling.shapes import fewest_trainers, total, with_trainers
from job_tracker.scheduling.waiting import WaitingGangs
from tests.support.fuzzing import TIMES, fuzzed
from tests.support.scheduling import LEAVES, NOW, RESOURCES, World, any_world, copy_of, needs

LESS_USED = "Queues that have used less for their weight go first."
NOT_RESERVED = "Jobs that go first hold all the reservations."
HIGHER = "A job with a higher priority goes first."


def the_same_state_always_has_the_same_plan(chance: Random) -> None:
    world = any_world(chance)
    shuffled = list(world.waiting.values())
    chance.shuffle(shuffled)
    again = Snapshot(
        flavors=world.flavors,
        queues=dict(list(world.queues.items())[::-1]),
        waiting=WaitingGangs(shuffled),
        running=RunningGangs(reversed(world.running.values())),
        usage=dict(reversed(world.usage.items())),
        promises=dict(reversed(world.promises.items())),
    )

    assert world.plan() == plan(again, world.now, world.options)


def neither_capacity_nor_quota_is_exceeded_and_no_gang_is_split(chance: Random) -> None:
    world = any_world(chance)
    decided = world.turn()

    assert len({each.job_id for each in decided.admitted}) == len(decided.admitted)
    for flavor in world.flavors:
        for resource in RESOURCES:
            assert world.used(flavor.name, resource) <= flavor.capacity[resource]
        _check_machines(world, flavor)
        _check_quotas(world, flavor)
    _check_most_running(world, decided)
    for admit in decided.admitted:
        run = world.running[admit.job_id]
        asked = run.gang.parts[0].count
        assert fewest_trainers(run.gang) <= (admit.allocation.trainers or asked) <= asked
        assert not run.gang.flavors or admit.allocation.flavor in run.gang.flavors


def _check_machines(world: World, flavor: Flavor) -> None:
    used = {node.name: Counter[str]() for node in flavor.nodes}
    for run in world.running.values():
        if run.allocation.flavor != flavor.name:
            continue
        assert len(run.allocation.nodes) == (needs(run)["instances"] if flavor.nodes else 0)
        each = [
            part.each.get("gpu", 0)
            for part in with_trainers(run.gang.parts, run.allocation.trainers)
            for _ in range(part.count)
        ]
        for name, gpu in zip(run.allocation.nodes, each, strict=bool(flavor.nodes)):
            used[name].update(instances=1, gpu=gpu)
    for node in flavor.nodes:
        assert all(used[node.name][resource] <= node.capacity[resource] for resource in RESOURCES)


def _check_quotas(world: World, flavor: Flavor) -> None:
    """No node uses more than its quota and borrowing limit. What a queue does not lend stays free for it."""
    for resource in RESOURCES:
        kept = 0
        for name, queue in world.queues.items():
            limit = queue.limits.get(flavor.name, {}).get(resource)
            if limit is None:
                continue
            used = world.used(flavor.name, resource, world.below(name))
            assert limit.borrow is None or used <= limit.nominal + limit.borrow
            if name in LEAVES and limit.lend is not None:
                kept += max(0, limit.nominal - limit.lend - used)
        assert world.used(flavor.name, resource) + kept <= flavor.capacity[resource]


def _check_most_running(world: World, decided: Plan) -> None:
    for name, queue in world.queues.items():
        count = sum(run.gang.queue in world.below(name) for run in world.running.values())
        started = sum(world.running[each.job_id].gang.queue in world.below(name) for each in decided.admitted)
        assert not started or queue.max_running is None or count <= queue.max_running


def no_backfill_delays_a_reservation(chance: Random) -> None:
    """If all jobs run as long as planned, each reservation can be kept: no backfill delays any."""
    world = any_world(chance, with_nodes=False)
    waiting = dict(world.waiting)
    decided = world.turn()

    spans: list[tuple[float, float, str, Running | tuple[Part, ...]]] = []
    for run in world.running.values():
        spans.append((world.now, planned_end(run, world.now), run.allocation.flavor, run))
    for each in decided.reserved:
        gang = waiting[each.job_id]
        if each.promise.at < math.inf:
            length = planned_length(gang.expected)
            parts = with_trainers(gang.parts, fewest_trainers(gang))
            spans.append((each.promise.at, each.promise.at + length, each.promise.flavor, parts))
    for flavor in world.flavors:
        for at in {begin for begin, _, _, _ in spans}:
            for resource in RESOURCES:
                used = sum(
                    needs(what)[resource] if isinstance(what, Running) else total(what).get(resource, 0)
                    for begin, end, name, what in spans
                    if name == flavor.name and begin <= at < end
                )
                assert used <= flavor.capacity[resource]


def a_promise_moves_later_only_for_queues_that_have_used_less(chance: Random) -> None:
    """With several flavors or with machines, the choice of another one can delay a later promise."""
    world = any_world(chance, with_nodes=False, pools="x")
    first = world.turn()
    later = {each.job_id: each for each in world.plan().reserved}

    for each in first.reserved:
        again = later.get(each.job_id)
        if again is not None and again.promise.at > each.promise.at + 1e-6:
            mine = world.waiting[each.job_id]
            is_behind = any(
                other.queue == mine.queue and other.priority > mine.priority
                for other in world.waiting.values()
            )
            assert (
                again.moved_because == LESS_USED
                or (is_behind and again.moved_because == HIGHER)
                or (again.promise.at == math.inf and again.moved_because == NOT_RESERVED)
            )
            assert again.promise.is_put_off
        if each.moved_because:
            assert each.promise.is_put_off


def with_one_queue_no_promise_moves_later(chance: Random) -> None:
    world = any_world(chance, with_limits=False, with_nodes=False, pools="x")
    queue = chance.choice(LEAVES)
    alone = copy_of(world)
    alone.waiting = {job_id: each for job_id, each in world.waiting.items() if each.queue == queue}
    first = {each.job_id: each.promise for each in alone.turn().reserved}

    for each in alone.plan().reserved:
        assert each.job_id not in first or each.promise.at <= first[each.job_id].at + 1e-6


def lent_quota_goes_back_to_its_owner_when_borrowers_end(chance: Random) -> None:
    world = any_world(chance, with_nodes=False)
    world.queues = {
        name: Queue(name=name, parent=each.parent, weight=each.weight, limits=each.limits)
        for name, each in world.queues.items()
    }
    owned = [each for each in _first_ones(world) if _is_guaranteed(world, each)]
    rounds = len(world.waiting) + 2
    for gang in owned:
        mine = copy_of(world)
        for _ in range(rounds):
            mine.turn()
            if gang.job_id in mine.running:
                break
            for job_id, run in list(mine.running.items()):
                if run.gang.queue != gang.queue and not _is_within(mine, run):
                    del mine.running[job_id]
        assert gang.job_id in mine.running


def _first_ones(world: World) -> list[Gang]:
    waiting = world.snapshot().waiting
    return [next(iter(waiting.in_order(queue))) for queue in waiting.queues()]


def _is_guaranteed(world: World, gang: Gang) -> bool:
    """Return whether the quota of the gang's own queue is enough for it, on each flavor that it takes."""
    needed = total(with_trainers(gang.parts, fewest_trainers(gang)))
    flavors = gang.flavors or [each.name for each in world.flavors]
    limits = world.queues[gang.queue].limits
    return fits_ever(world.queues, world.flavors, gang) is None and all(
        resource in limits.get(flavor, {})
        and world.used(flavor, resource, [gang.queue]) + needed.get(resource, 0)
        <= limits[flavor][resource].nominal
        for flavor in flavors
        for resource in RESOURCES
    )


def _is_within(world: World, run: Running) -> bool:
    """Return whether the queue of a running gang uses no more than its own quota."""
    limits = world.queues[run.gang.queue].limits.get(run.allocation.flavor, {})
    return all(
        resource in limits
        and world.used(run.allocation.flavor, resource, [run.gang.queue]) <= limits[resource].nominal
        for resource in RESOURCES
    )


def no_job_waits_for_ever_while_others_of_its_queue_pass(chance: Random) -> None:
    world = any_world(chance, lengths=(None, 10.0, 100.0))
    mine = next(iter(sorted(world.waiting)), None)
    if mine is None:
        return
    target = world.waiting[mine]
    passed = 0
    # Each job before it in its queue may be passed as often, too.
    most = world.options.overtake_limit * sum(each.queue == target.queue for each in world.waiting.values())
    for turn in range(90):
        world.now = NOW + turn * 60
        decided = world.turn()
        if target.job_id in world.running or fits_ever(world.queues, world.flavors, target) is not None:
            return
        usable = flavors_for(world.queues, world.flavors, target)
        others = [
            world.running[each.job_id].gang for each in decided.admitted if each.allocation.flavor in usable
        ]
        promise = world.promises.get(mine)
        # If its promise still holds, the job starts at that time, even if others pass it before.
        passed += not (promise is not None and promise.at < math.inf and not promise.is_put_off) and sum(
            each.queue == target.queue and each.job_id > mine and each.priority <= target.priority
            for each in others
        )
        for job_id in list(world.running):
            if chance.random() < 0.4:
                del world.running[job_id]
        for queue in LEAVES:
            if len(world.waiting) < 40:
                job_id = 1_000 + turn * 10 + LEAVES.index(queue)
                size = chance.choice([1, 1, 4])
                expected = chance.choice([None, target.expected])
                world.waiting[job_id] = Gang(
                    job_id=job_id, queue=queue, parts=(Part(size, {}),), expected=expected
                )
    assert passed <= most


RULES: list[Callable[[Random], None]] = [
    the_same_state_always_has_the_same_plan,
    neither_capacity_nor_quota_is_exceeded_and_no_gang_is_split,
    no_backfill_delays_a_reservation,
    a_promise_moves_later_only_for_queues_that_have_used_less,
    with_one_queue_no_promise_moves_later,
    lent_quota_goes_back_to_its_owner_when_borrowers_end,
    no_job_waits_for_ever_while_others_of_its_queue_pass,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_holds_in_states_of_many_seeds(rule: Callable[[Random], None]) -> None:
    for seed in range(100 * TIMES):
        try:
            rule(Random(seed))
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


@fuzzed(8)
@given(st.randoms(use_true_random=False), st.sampled_from(RULES[:-1]))
def test_the_rules_hold_in_states_that_are_made_as_small_as_possible(
    chance: Random, rule: Callable[[Random], None]
) -> None:
    rule(chance)
