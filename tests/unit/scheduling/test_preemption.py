"""The planner stops the jobs that lose least for waiting jobs, and never more than needed."""

import random
from dataclasses import replace
from typing import Any

import pytest

from job_tracker.scheduling.model import (
    Allocation,
    Flavor,
    Gang,
    Limit,
    Node,
    Part,
    Plan,
    Preempt,
    PreemptionReason,
    PreemptionRules,
    Queue,
    Reason,
    Running,
)
from job_tracker.scheduling.planner import plan
from job_tracker.scheduling.quotas import QuotaTree, quota_rules
from job_tracker.scheduling.shapes import held_parts, total
from tests.support.fuzzing import TIMES
from tests.support.preempting import NOW, World, gang, random_world, without

BY_PRIORITY = PreemptionRules(by_priority=True)
PRIORITY, RECLAIM = PreemptionReason.PRIORITY, PreemptionReason.RECLAIM


def queue(name: str, nominal: int | None = None, parent: str = "", **rules: Any) -> Queue:
    limits = {} if nominal is None else {"default": {"instances": Limit(nominal=nominal)}}
    return Queue(name=name, parent=parent, limits=limits, preemption=replace(PreemptionRules(), **rules))


def one_queue(capacity: int = 8, **rules: Any) -> World:
    return World(queue("a", by_priority=True, **rules), capacity=capacity)


def stopped(decided: Plan) -> list[int]:
    return [each.job_id for each in decided.preempted]


def test_a_job_of_a_higher_priority_stops_the_one_that_loses_least() -> None:
    world = one_queue(capacity=3)
    world.run(gang(1), since=900)
    world.run(gang(2), since=10)
    world.run(gang(3), since=300)
    world.submit(gang(4, priority=100))
    decided = world.turn()
    assert decided.preempted == (Preempt(job_id=2, attempt=1, by_job=4, why=PRIORITY),)
    assert decided.admitted == ()
    assert world.turn().preempted == (), "it is on its way"
    world.leave()
    assert [each.job_id for each in world.turn().admitted] == [4]


def test_by_default_a_priority_stops_nobody() -> None:
    world = World(queue("a"), capacity=1)
    world.run(gang(1))
    world.submit(gang(2, priority=100))
    assert world.turn().preempted == ()


def test_the_loss_counts_instances_and_the_time_to_get_going_again() -> None:
    world = one_queue(capacity=4)
    world.run(gang(1, count=2), since=100)
    world.run(gang(2, count=1), since=100, startup=150)
    world.run(gang(3, count=1), since=190)
    world.submit(gang(4, priority=1))
    assert stopped(world.turn()) == [3], "190 are less than 200 and 250"


def test_a_job_without_checkpoints_is_not_spared() -> None:
    """It would lose everything since its start. Nothing else protects it."""
    world = one_queue(capacity=1)
    world.run(gang(1), since=5000)
    world.submit(gang(2, priority=1))
    assert stopped(world.turn()) == [1]


def test_among_several_victims_the_lowest_priority_goes_first() -> None:
    world = one_queue(capacity=2)
    world.run(gang(1, priority=-100), since=900)
    world.run(gang(2, priority=0), since=10)
    world.submit(gang(3, priority=100))
    assert stopped(world.turn()) == [1]


@pytest.mark.parametrize(("since_of_large", "expected"), [(50, [1]), (500, [2, 3])])
def test_one_large_job_or_several_small_ones_whatever_loses_less(
    since_of_large: float, expected: list[int]
) -> None:
    world = one_queue(capacity=4)
    world.run(gang(1, count=2), since=since_of_large)
    world.run(gang(2), since=300)
    world.run(gang(3), since=200)
    world.submit(gang(4, count=2, priority=1))
    assert sorted(stopped(world.turn())) == expected


def test_what_is_not_needed_is_put_back() -> None:
    world = one_queue(capacity=5)
    world.run(gang(1, count=1), since=10)
    world.run(gang(2, count=4), since=30)
    world.submit(gang(3, count=4, priority=1))
    assert stopped(world.turn()) == [2]


def test_nobody_is_stopped_if_all_together_are_not_enough() -> None:
    world = one_queue(capacity=4)
    world.run(gang(1, count=2, priority=100))
    world.run(gang(2, count=2))
    world.submit(gang(3, count=3, priority=50), gang(4, count=1, priority=50))
    assert world.turn().preempted == ()


def test_equal_priorities_stop_nobody() -> None:
    world = one_queue(capacity=1)
    world.run(gang(1, priority=100))
    world.submit(gang(2, priority=100))
    assert world.turn().preempted == ()


def test_a_priority_reaches_no_other_queue() -> None:
    world = World(queue("a", by_priority=True), queue("b", by_priority=True), capacity=1)
    world.run(gang(1, "b"))
    world.submit(gang(2, "a", priority=100))
    assert world.turn().preempted == ()


@pytest.mark.parametrize(
    "rules",
    [{"min_runtime": 6000.0}, {"max_preemptions": 0}, {"protected": 0}],
    ids=["too young", "never", "its priority protects it"],
)
def test_rules_of_the_queue_protect_a_job(rules: dict[str, Any]) -> None:
    world = one_queue(capacity=1, **rules)
    world.run(gang(1))
    world.submit(gang(2, priority=1))
    assert world.turn().preempted == ()
    world.now += 2000.0  # the job has run for 7,000 s
    assert stopped(world.turn()) == ([1] if "min_runtime" in rules else [])


def test_a_job_is_stopped_at_most_so_often() -> None:
    world = one_queue(capacity=1, max_preemptions=2)
    world.counts[1] = 2
    world.run(gang(1))
    world.submit(gang(2, priority=1))
    assert world.turn().preempted == ()


def test_a_preempted_job_stops_no_others() -> None:
    world = one_queue(capacity=1)
    world.run(gang(1))
    world.counts[2] = 1
    world.submit(gang(2, priority=100))
    assert world.turn().preempted == ()
    world.submit(gang(3, priority=50))
    assert stopped(world.turn()) == [1], "a job behind it may stop others"


def test_nothing_is_stopped_while_nothing_may_start() -> None:
    world = one_queue(capacity=1)
    world.is_open = False
    world.run(gang(1))
    world.submit(gang(2, priority=100))
    assert world.turn().preempted == ()


def test_a_queue_takes_back_what_others_have_borrowed_and_no_more() -> None:
    world = World(queue("a", 4), queue("b", 4), capacity=8)
    for job_id in range(1, 9):
        world.run(gang(job_id, "b"), since=10.0 * job_id)
    world.submit(gang(9, "a", count=3), gang(10, "a", count=2))
    decided = world.turn()
    assert sorted(stopped(decided)) == [1, 2, 3]
    assert {each.why for each in decided.preempted} == {RECLAIM}
    assert {each.by_job for each in decided.preempted} == {9}, "with job 10, queue a would borrow itself"
    world.leave()
    assert [each.job_id for each in world.turn().admitted] == [9]
    assert world.turn().preempted == (), "queue b waits with four jobs, but uses its guarantee"


def test_a_queue_within_its_quota_is_never_a_victim() -> None:
    world = World(queue("a", 4), queue("b", 4), queue("c"), capacity=9)
    world.run(gang(1, "b", count=4), since=1)
    world.run(gang(2, "c", count=5), since=1000)
    world.submit(gang(3, "a"))
    assert stopped(world.turn()) == [2]


def _gpus(job_id: int, name: str, cpu: int, gpu: int) -> Gang:
    return replace(gang(job_id, name), parts=(Part(1, {"instances": 1, "cpu": cpu, "gpu": gpu}),))


@pytest.mark.parametrize(
    ("cpus", "stops"), [(1000, [3]), (26, [3, 2])], ids=["enough cpu is free", "cpu is short, too"]
)
def test_a_queue_takes_back_only_what_is_short_from_those_that_borrow_it(cpus: int, stops: list[int]) -> None:
    """Job 1 holds the GPUs guaranteed to queue a. Queue a borrows cpu for job 2; queue c borrows GPUs."""
    guaranteed = {"default": {"cpu": Limit(nominal=8), "gpu": Limit(nominal=4)}}
    flavor = Flavor(name="default", capacity={"instances": 100, "cpu": cpus, "gpu": 12})
    world = World(*(Queue(name=name, limits=guaranteed) for name in "abc"), flavors=[flavor])
    world.run(_gpus(1, "a", cpu=0, gpu=4), since=1)
    world.run(_gpus(2, "a", cpu=20, gpu=0), since=1000)
    for job_id in (3, 4):
        world.run(_gpus(job_id, "c", cpu=1, gpu=4), since=500 * job_id)
    world.submit(_gpus(9, "b", cpu=6, gpu=4))
    assert sorted(stopped(world.turn())) == sorted(stops)


def test_a_queue_that_does_not_reclaim_waits() -> None:
    world = World(queue("a", 4, reclaim=False), queue("b", 4), capacity=8)
    world.run(gang(1, "b", count=8))
    world.submit(gang(2, "a"))
    assert world.turn().preempted == ()


def test_a_parent_takes_back_for_its_queues_but_not_between_them() -> None:
    world = World(
        queue("top", 6), queue("a", parent="top"), queue("b", parent="top"), queue("c", 2), capacity=8
    )
    world.run(gang(1, "b", count=4), since=1)
    world.run(gang(2, "c", count=4), since=1000)
    world.submit(gang(3, "a", count=2))
    assert stopped(world.turn()) == [2], "b is in the same parent, which is within its guarantee"


def test_elastic_groups_shrink_first_and_no_more_than_needed() -> None:
    world = one_queue(capacity=8)
    world.run(gang(1, count=6, least=2), since=500)
    world.run(gang(2, count=2), since=1)
    world.submit(gang(3, count=3, priority=1))
    decided = world.turn()
    assert decided.preempted == (Preempt(job_id=1, attempt=1, by_job=3, why=PRIORITY, trainers=3),)
    world.leave()
    admitted = {each.job_id: each.allocation.trainers for each in world.turn().admitted}
    assert admitted == {3: 0, 1: 3}, "it goes on at once with what is left"


def test_a_group_that_cannot_shrink_enough_is_stopped() -> None:
    world = one_queue(capacity=4)
    world.run(gang(1, count=4, least=2))
    world.submit(gang(2, count=3, priority=1))
    decided = world.turn()
    assert [(each.job_id, each.trainers) for each in decided.preempted] == [(1, 0)]


def test_machines_count_if_they_are_known() -> None:
    """Two free instances on two machines are not two on one."""
    nodes = tuple(Node(name=f"n{n}", capacity={"instances": 4, "gpu": 2}) for n in (1, 2))
    flavor = Flavor(name="default", capacity={"instances": 8, "gpu": 4}, nodes=nodes)
    world = World(queue("a", by_priority=True), flavors=[flavor])
    for job_id, (node, since) in enumerate((("n1", 5), ("n1", 90), ("n2", 10), ("n2", 20)), start=1):
        world.run(gang(job_id, each=1), since=since)
        run = world.running[job_id]
        world.running[job_id] = replace(run, allocation=replace(run.allocation, nodes=(node,)))
    world.submit(gang(5, each=2, priority=1))
    assert sorted(stopped(world.turn())) == [3, 4], "1 and 3 lose less, but are on two machines"


def test_a_job_on_another_flavor_counts_if_the_queue_runs_as_many_as_it_may() -> None:
    flavors = [Flavor(name=name, capacity={"instances": 2}) for name in ("full", "free")]
    world = World(replace(queue("a", by_priority=True), max_running=2), flavors=flavors)
    for job_id in (1, 2):
        world.run(gang(job_id), since=10.0 * job_id)
        run = world.running[job_id]
        world.running[job_id] = replace(run, allocation=replace(run.allocation, flavor="full"))
    world.submit(gang(3, count=2, priority=1))
    assert stopped(world.turn()) == [1], "after that, job 3 starts on the other flavor"


def test_freed_capacity_is_kept_for_the_job_although_others_go_before_it() -> None:
    world = World(queue("a", by_priority=True), queue("b"), capacity=2)
    world.run(gang(1, "a"), since=1)
    world.run(gang(2, "a"), since=1)
    world.submit(gang(3, "a", count=2, priority=1))
    world.turn()
    world.submit(gang(4, "b"))  # queue b has used nothing, so it goes first
    world.stakes = {job_id: replace(stake, saved_at=NOW) for job_id, stake in world.stakes.items()}
    job = world.running.pop(1)  # one of the two is gone already
    del world.stakes[1]
    world.waiting.add(job.gang)
    world.counts[1] = 1
    decided = world.turn()
    assert decided.admitted == ()
    waits = next(each for each in decided.reserved if each.job_id == 3)
    assert waits.reasons[0] is Reason.PREEMPTING
    world.leave()
    assert [each.job_id for each in world.turn().admitted] == [3]


def test_without_the_job_the_capacity_is_for_all_again() -> None:
    world = one_queue(capacity=1)
    world.run(gang(1))
    world.submit(gang(2, priority=1))
    world.turn()
    world.waiting.remove(2)  # cancelled
    world.leave()
    assert [each.job_id for each in world.turn().admitted] == [1]


def test_a_job_does_not_start_on_capacity_that_is_not_free_yet() -> None:
    world = one_queue(capacity=2)
    world.run(gang(1), since=1)
    world.run(gang(2), since=50)
    world.submit(gang(3, priority=1))
    world.turn()
    world.end(2)  # capacity gets free elsewhere, but the victim is not gone yet
    assert world.turn().admitted == ()
    world.leave()
    assert {each.job_id for each in world.turn().admitted} == {1, 3}


def _seeds(count: int, step: int = 1) -> range:
    return range(0, count * step, step)


def test_in_random_states_victims_are_enough_and_none_is_too_many() -> None:
    found = 0
    for seed in _seeds(max(1500, 100 * TIMES)):
        world = random_world(seed)
        decided = world.decide()
        world.turn()
        first = next((each.by_job for each in decided.preempted if each.by_job), 0)
        if not first:  # jobs only change their size
            continue
        victims = [each for each in decided.preempted if each.by_job == first]
        admitted = {each.job_id for each in decided.admitted}
        assert not {each.job_id for each in victims} & admitted, seed
        assert _starts(world, victims, first), (seed, victims)
        for index, left_out in enumerate(victims):
            fewer = victims[:index] + victims[index + 1 :]
            assert not fewer or not _starts(world, fewer, first), (seed, left_out)
        found += 1
    assert found > 50


def _starts(world: World, victims: list[Preempt], job_id: int) -> bool:
    state = without(world, victims)
    return job_id in {each.job_id for each in plan(replace(state, claims=[job_id]), world.now).admitted}


def test_random_sequences_end_without_a_cycle_and_no_job_is_stopped_too_often() -> None:
    preempted = 0
    for seed in _seeds(max(500, 100 * TIMES)):
        world, chance = random_world(seed), random.Random(seed)
        triggers: dict[int, int] = {}
        for _ in range(40):
            decided = world.turn()
            for each in decided.preempted:
                assert each.by_job not in world.counts, (seed, "a preempted job stops no others")
                stopped_queue = world.queues[world.running[each.job_id].gang.queue]
                assert world.counts.get(each.job_id, 0) < stopped_queue.preemption.max_preemptions
                triggers[each.by_job] = triggers.get(each.by_job, 0) + 1
            preempted += len(decided.preempted)
            _check_capacity(world, seed)
            world.now += 10.0
            if chance.random() < 0.7:
                world.leave()
            if not decided.preempted and not decided.admitted and not _leaving(world):
                break
        else:
            raise AssertionError(f"seed {seed}: it does not come to rest: {triggers}")
    assert preempted > 100


def _leaving(world: World) -> bool:
    return any(stake.is_leaving for stake in world.stakes.values())


def _check_capacity(world: World, seed: int) -> None:
    for flavor in world.flavors:
        used: dict[str, int] = {}
        for run in world.running.values():
            if run.allocation.flavor == flavor.name:
                for name, amount in total(held_parts(run.gang, run.allocation)).items():
                    used[name] = used.get(name, 0) + amount
        for name, amount in flavor.capacity.items():
            assert used.get(name, 0) <= amount, (seed, flavor.name, name)


@pytest.mark.parametrize("unlucky", [0, 8])
def test_with_many_queues_each_has_its_turn(unlucky: int) -> None:
    """This holds even if the first queues can take nothing back, because protected jobs hold their quota."""
    flavors = [Flavor(name=name, capacity={"instances": 20}) for name in ("held", "lent")]
    queues = [queue("free"), queue("kept", max_preemptions=0)]
    for number in range(20):
        limits = {"held" if number < unlucky else "lent": {"instances": Limit(nominal=1)}}
        queues.append(Queue(name=f"q{number:02}", limits=limits))
    world = World(*queues, flavors=flavors)
    for number in range(20):
        for flavor, name in (("held", "kept"), ("lent", "free")):
            running = gang(number + 20 * (flavor == "held"), name)
            world.begin(Running(running, Allocation(flavor=flavor), NOW - 5000))
        wanted = ("held",) if number < unlucky else ("lent",)
        world.submit(replace(gang(100 + number, f"q{number:02}"), flavors=wanted))
    most = 0
    for _ in range(30):
        most = max(most, len(world.turn().preempted))
        world.leave()
        world.now += 1.0
    assert {each for each in range(100, 120) if each in world.running} == set(range(100 + unlucky, 120))
    assert most <= 8


def test_what_is_guaranteed_can_always_be_taken_back() -> None:
    """A job within the guarantee of its queue starts as soon as its victims are gone."""
    for seed in _seeds(500):
        chance = random.Random(seed)
        capacity = chance.randint(4, 20)
        left, queues = capacity, [queue("free")]
        for name in "abc":
            nominal = chance.randint(0, left)
            left -= nominal
            queues.append(queue(name, nominal))
        world = World(*queues, capacity=capacity)
        job_id, free = 0, capacity
        while free:
            job_id, count = job_id + 1, chance.randint(1, min(4, free))
            free -= count
            least = chance.choice([0, 1])
            world.run(
                gang(job_id, chance.choice(queues).name, count, least=least), since=chance.uniform(0, 99)
            )
        tree = QuotaTree(quota_rules(world.queues, world.flavors))
        for run in world.running.values():
            tree.use(run.gang.queue, "default", total(held_parts(run.gang, run.allocation)))
        for each in queues[1:]:
            most = [
                n
                for n in range(1, capacity + 1)
                if tree.is_guaranteed(each.name, "default", {"instances": n})
            ]
            if not most:
                continue
            wanted = gang(1000, each.name, max(most))
            trial = World(*queues, capacity=capacity)
            trial.running, trial.stakes = dict(world.running), dict(world.stakes)
            trial.submit(wanted)
            assert trial.turn().preempted, (seed, each.name)
            trial.leave()
            assert 1000 in {admit.job_id for admit in trial.turn().admitted}, (seed, each.name)
