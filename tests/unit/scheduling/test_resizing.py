"""Elastic jobs continue with more instances or with fewer, and do not change their size for ever."""

import random
from dataclasses import replace
from typing import Any

import pytest

from job_tracker.scheduling.lengths import remaining
from job_tracker.scheduling.model import (
    Allocation,
    Expected,
    Flavor,
    Gang,
    Limit,
    Node,
    Plan,
    Preempt,
    PreemptionReason,
    PreemptionRules,
    Queue,
    Reason,
)
from job_tracker.scheduling.running import trainers_of
from job_tracker.scheduling.shapes import held_parts, total
from tests.support.fuzzing import TIMES
from tests.support.preempting import NOW, World, gang, random_world

GROW, SHRINK = PreemptionReason.GROW, PreemptionReason.SHRINK


def queue(name: str = "a", nominal: int | None = None, **rules: Any) -> Queue:
    limits = {} if nominal is None else {"default": {"instances": Limit(nominal=nominal)}}
    return Queue(name=name, limits=limits, preemption=replace(PreemptionRules(), **rules))


def one_queue(capacity: int = 8, **rules: Any) -> World:
    return World(queue(**rules), capacity=capacity)


def sizes(world: World) -> dict[int, int]:
    return {job_id: trainers_of(run) for job_id, run in world.running.items()}


def elastic(job_id: int, count: int = 8, least: int = 2, name: str = "a", **rest: Any) -> Any:
    """A job that runs for a day."""
    day = Expected(median=86400.0, high=86400.0)
    return replace(gang(job_id, name, count, least=least, **rest), expected=day)


def test_a_job_that_has_begun_with_few_instances_grows_when_more_are_free() -> None:
    world = one_queue()
    world.run(gang(1, count=5), since=0)
    world.run(elastic(2), trainers=3)
    assert world.turn().preempted == (), "all is in use"
    world.end(1)
    decided = world.turn()
    assert decided.preempted == (Preempt(job_id=2, attempt=1, by_job=0, why=GROW, trainers=8),)
    assert world.turn().preempted == (), "it is on its way"
    world.leave()
    assert [each.job_id for each in world.turn().admitted] == [2]
    assert sizes(world) == {2: 8}
    assert world.counts == {}, "it was not preempted"


@pytest.mark.parametrize(("rules", "after"), [({}, 600.0), ({"resize_period": 7200.0}, 7200.0)])
def test_its_size_changes_only_after_the_period(rules: dict[str, Any], after: float) -> None:
    world = one_queue(**rules)
    world.run(elastic(1), trainers=3)
    run = world.running[1]
    world.running[1] = replace(run, started_at=NOW - after + 1)
    decided = world.turn()
    assert decided.preempted == ()
    assert decided.next_at == pytest.approx(NOW + 1), "then it may grow"
    world.now += 1
    assert [each.why for each in world.turn().preempted] == [GROW]


def test_with_a_period_of_0_its_size_never_changes() -> None:
    world = one_queue(resize_period=0.0)
    world.run(elastic(1), trainers=3)
    decided = world.turn()
    assert (decided.preempted, decided.next_at) == ((), None)


@pytest.mark.parametrize(
    ("since", "startup", "grows"),
    [(100, 60, True), (140_000, 60, False), (100, 60_000, False), (120_000, 60, True)],
    ids=["has just saved", "loses too much", "needs long to get going", "gains more than it loses"],
)
def test_it_grows_only_if_it_pays(since: float, startup: float, grows: bool) -> None:
    """5 more trainers gain 407,000 instance-seconds in another 81,400 s."""
    world = one_queue()
    world.run(elastic(1), trainers=3, since=since, startup=startup)
    assert [each.trainers for each in world.turn().preempted] == [8] * grows


def test_the_rest_of_a_job_of_unknown_length_is_as_long_as_it_has_run() -> None:
    world = one_queue()
    world.run(replace(elastic(1), expected=None))
    assert remaining(world.running[1], NOW) == 5000.0
    world.run(elastic(1))
    assert remaining(world.running[1], NOW) == 81_400.0
    assert remaining(world.running[1], NOW + 100_000) == 105_000.0, "it runs longer than expected"


def test_nothing_grows_while_another_job_waits_for_machines() -> None:
    world = one_queue()
    world.run(replace(elastic(1), expected=None), trainers=3)
    world.submit(gang(2, count=6))
    assert GROW not in {each.why for each in world.turn().preempted}


def test_a_job_grows_no_further_than_promises_allow() -> None:
    world = one_queue(capacity=9)
    world.run(elastic(1), trainers=2, since=80_000)  # the job would lose too much by a stop
    world.run(gang(2, count=3))
    world.running[2] = replace(world.running[2], started_at=NOW)
    world.submit(gang(3, count=6))  # the waiting job starts when job 2 has ended
    assert world.turn().preempted == ()
    assert world.promises[3].at == NOW + 1000


def test_the_quota_bounds_growth() -> None:
    limit = {"default": {"instances": Limit(nominal=4, borrow=1)}}
    world = World(replace(queue("a"), limits=limit), queue("b", 4), capacity=8)
    world.run(elastic(1), trainers=2)
    assert [each.trainers for each in world.turn().preempted] == [5]


def test_machines_count_if_they_are_known() -> None:
    nodes = tuple(Node(name=f"n{n}", capacity={"instances": 4, "gpu": 4}) for n in (1, 2))
    flavor = Flavor(name="default", capacity={"instances": 8, "gpu": 8}, nodes=nodes)
    world = World(queue(), flavors=[flavor])
    world.run(elastic(1, each=2), trainers=2)
    run = world.running[1]
    world.running[1] = replace(run, allocation=replace(run.allocation, nodes=("n1", "n1")))
    assert [each.trainers for each in world.turn().preempted] == [4], "each needs two of four"
    world.leave()
    (admit,) = world.turn().admitted
    assert sorted(admit.allocation.nodes) == ["n1", "n1", "n2", "n2"]


def test_a_job_shrinks_so_that_a_waiting_one_starts() -> None:
    world = one_queue()
    world.run(elastic(1), trainers=8)
    world.submit(gang(2, count=3))
    decided = world.turn()
    assert decided.preempted == (Preempt(job_id=1, attempt=1, by_job=2, why=SHRINK, trainers=5),)
    world.leave()
    assert {each.job_id for each in world.turn().admitted} == {1, 2}
    assert sizes(world) == {1: 5, 2: 3}
    world.now += 10_000
    world.stake(1, since=10)
    assert world.turn().preempted == (), "it neither grows nor shrinks while all is in use"


def test_of_several_those_shrink_that_lose_least() -> None:
    world = one_queue()
    world.run(elastic(1, count=4, least=1), since=900)
    world.run(elastic(2, count=4, least=1), since=10)
    world.submit(gang(3, count=2))
    assert [(each.job_id, each.trainers) for each in world.turn().preempted] == [(2, 2)]


def test_a_job_does_not_shrink_for_one_that_would_wait_only_briefly() -> None:
    world = one_queue()
    world.run(elastic(1, count=7), since=1000)
    world.run(gang(2))
    world.running[2] = replace(world.running[2], started_at=NOW - 900)
    world.submit(gang(3, count=1))  # job 2 ends in 100 s
    assert world.turn().preempted == ()


@pytest.mark.parametrize(("startup", "shrinks"), [(99.0, True), (101.0, False)])
def test_of_a_job_that_shrinks_the_future_instances_start_up_again(startup: float, shrinks: bool) -> None:
    """The 2 instances of job 3 would wait for 100 s, which are 200 instance-seconds. Job 1 keeps 2."""
    world = one_queue()
    world.run(elastic(1, count=4), since=0, startup=startup)
    world.run(gang(2, count=4))
    world.running[2] = replace(world.running[2], started_at=NOW - 900)
    world.submit(gang(3, count=2))
    assert bool(world.turn().preempted) is shrinks


@pytest.mark.parametrize(
    "rules",
    [{"min_runtime": 6000.0}, {"max_preemptions": 0}, {"protected": 0}, {"resize_period": 0.0}],
    ids=["too young", "never", "its priority protects it", "no resizing"],
)
def test_rules_of_the_queue_protect_its_size(rules: dict[str, Any]) -> None:
    world = one_queue(**rules)
    world.run(elastic(1), trainers=8)
    world.submit(gang(2, count=3))
    assert world.turn().preempted == ()


def test_a_job_does_not_shrink_for_a_lower_priority_of_its_queue() -> None:
    world = one_queue()
    world.run(elastic(1, priority=1), trainers=8)
    world.submit(gang(2, count=3))
    assert world.turn().preempted == ()


@pytest.mark.parametrize(
    ("nominal", "other", "shrinks"),
    [(8, 0, False), (8, None, False), (7, 0, True), (5, 3, True), (None, None, True)],
    ids=["guaranteed", "without a quota", "it borrows, too", "both are guaranteed", "no quotas"],
)
def test_a_job_within_its_guarantee_does_not_shrink_for_one_that_would_borrow(
    nominal: int | None, other: int | None, shrinks: bool
) -> None:
    world = World(queue("a", nominal), queue("b", other, reclaim=False))
    world.run(elastic(1), trainers=8)
    world.submit(gang(2, "b", count=3))
    assert bool(world.turn().preempted) is shrinks


def test_a_job_shrinks_for_one_to_which_the_same_quota_of_a_parent_is_guaranteed() -> None:
    world = World(queue("both", 8), Queue(name="a", parent="both"), Queue(name="b", parent="both"))
    world.run(elastic(1), trainers=8)
    world.submit(gang(2, "b", count=3))
    assert [(each.job_id, each.trainers) for each in world.turn().preempted] == [(1, 5)]


@pytest.mark.parametrize("nominal", [None, 8])
def test_a_guarantee_is_that_of_its_queue_although_both_have_the_same_parent(nominal: int | None) -> None:
    own, other = (replace(queue(*each), parent="both") for each in (("a", 8), ("b", 0)))
    world = World(queue("both", nominal), own, other)
    world.run(elastic(1), trainers=8)
    world.submit(gang(2, "b", count=3))
    assert world.turn().preempted == ()


def test_no_job_shrinks_for_one_that_could_not_start_all_the_same() -> None:
    world = one_queue()
    world.run(elastic(1, count=4, least=2))
    world.run(gang(2, count=4))
    world.submit(gang(3, count=3))
    assert world.turn().preempted == ()


def test_elastic_jobs_shrink_before_others_are_stopped_for_a_priority() -> None:
    world = one_queue(by_priority=True)
    world.run(elastic(1, count=4, least=2, priority=-1), since=900)
    world.run(gang(2, count=4, priority=-1), since=1)
    world.submit(gang(3, count=2, priority=1))
    assert [(each.job_id, each.trainers) for each in world.turn().preempted] == [(1, 2)]


def test_a_job_that_shrinks_does_not_move_what_was_promised_to_another() -> None:
    """Job 3 is promised a start when job 2 has ended. Job 4, for which job 1 might shrink, is long."""
    world = World(queue("a"), queue("b"), capacity=8)
    world.run(elastic(1, count=6, least=5), since=1)
    world.run(gang(2, count=2))
    world.running[2] = replace(world.running[2], started_at=NOW - 990)
    world.submit(gang(3, "a", count=3), elastic(4, count=3, least=0, name="b"))
    decided = world.turn()
    world.leave()
    later = {each.job_id: each.promise.at for each in world.turn().reserved}
    first = {each.job_id: each.promise.at for each in decided.reserved}
    for job_id in later.keys() & first.keys():
        assert later[job_id] <= first[job_id] + 1


def test_what_is_submitted_while_a_job_stops_does_not_take_what_it_grows_into() -> None:
    world = one_queue()
    world.run(elastic(1), trainers=3)
    assert [each.trainers for each in world.turn().preempted] == [8]
    world.submit(gang(2, count=5), gang(3, priority=100))
    assert world.turn().admitted == (), "it is kept for the larger one"
    world.leave()
    assert [each.job_id for each in world.turn().admitted] == [1]
    assert sizes(world) == {1: 8}
    assert {each.reasons[0] for each in world.turn().reserved} == {Reason.CAPACITY}


def test_what_is_submitted_while_a_job_stops_does_not_take_what_it_keeps() -> None:
    """The job for which the other becomes smaller could use more, too."""
    world = one_queue()
    world.run(elastic(1), trainers=8)
    world.submit(elastic(2, count=8, least=3))
    assert [each.trainers for each in world.turn().preempted] == [5]
    world.submit(gang(3, count=5), gang(4, count=1, priority=100))
    assert world.turn().admitted == ()
    world.leave()
    world.turn()
    assert sizes(world) == {1: 5, 2: 3}


def test_a_job_grows_on_the_flavor_on_which_more_is_free() -> None:
    """With its fewest trainers, it would also fit on the first flavor."""
    flavors = [Flavor(name=name, capacity={"instances": amount}) for name, amount in (("x", 4), ("y", 8))]
    world = World(queue(), flavors=flavors)
    world.run(gang(1, count=2))
    world.running[1] = replace(world.running[1], allocation=Allocation(flavor="x"))
    world.run(elastic(2))
    world.running[2] = replace(world.running[2], allocation=Allocation(flavor="y", trainers=5))
    assert [each.trainers for each in world.turn().preempted] == [8]
    world.leave()
    (admit,) = world.turn().admitted
    assert (admit.allocation.flavor, sizes(world)[2]) == ("y", 8)


def test_a_job_grows_although_another_that_is_to_go_on_can_never_start() -> None:
    """The flavor on which job 1 ran is gone, and no other one is large enough for it."""
    small = Flavor(name="small", capacity={"instances": 4})
    world = World(queue(), flavors=[Flavor(name="large", capacity={"instances": 8}), small])
    world.run(elastic(1, count=8, least=5))
    world.running[1] = replace(world.running[1], allocation=Allocation(flavor="large", trainers=6))
    assert [each.trainers for each in world.turn().preempted] == [8]
    world.leave()
    world.flavors = (small,)
    world.run(elastic(2, count=4))
    world.running[2] = replace(world.running[2], allocation=Allocation(flavor="small", trainers=2))
    decided = world.turn()
    assert [(each.job_id, each.reasons[0]) for each in decided.reserved] == [(1, Reason.LOST_CAPACITY)]
    assert [(each.job_id, each.trainers) for each in decided.preempted] == [(2, 4)]


@pytest.mark.parametrize(("seconds", "kept"), [(3599.0, True), (3600.0, False)])
def test_an_hour_after_the_notice_nothing_is_kept_that_a_job_would_grow_into(
    seconds: float, kept: bool
) -> None:
    world = one_queue()
    world.run(elastic(1), trainers=3)
    assert [each.trainers for each in world.turn().preempted] == [8]
    world.submit(gang(2, count=5))
    world.now += seconds
    assert [each.job_id for each in world.turn().admitted] == ([] if kept else [2])


def test_a_job_that_shrinks_keeps_its_machines_until_it_has_left_however_long_that_takes() -> None:
    world = one_queue()
    world.run(elastic(1), trainers=8)
    world.submit(gang(2, count=3))
    assert [each.trainers for each in world.turn().preempted] == [5]
    for _ in range(3):
        world.now += 3600.0
        assert world.turn().admitted == (), "all is in use"
    world.leave()
    world.turn()
    assert sizes(world) == {1: 5, 2: 3}


def test_promises_that_are_made_while_a_job_stops_hold_when_it_has_gone_on() -> None:
    world = one_queue()
    world.run(elastic(1), trainers=3)
    world.turn()
    world.submit(gang(2, count=8))
    promised: set[float] = set()
    for _ in range(5):
        world.turn()
        promised.add(world.promises[2].at)
        world.now += 10
    assert len(promised) == 1
    world.leave()
    world.turn()
    assert sizes(world) == {1: 8}
    assert world.promises[2].at <= min(promised)


def test_a_quota_is_kept_for_a_job_that_grows() -> None:
    world = World(queue("a", 6), queue("b", 6), capacity=12)
    world.queues = {
        name: replace(each, limits={"default": {"instances": Limit(nominal=6, borrow=0)}})
        for name, each in world.queues.items()
    }
    world.run(elastic(1, count=6), trainers=3)
    assert [each.trainers for each in world.turn().preempted] == [6]
    world.submit(gang(2, count=3), gang(3, "b", count=3))
    assert [each.job_id for each in world.turn().admitted] == [3]
    world.leave()
    world.turn()
    assert sizes(world) == {1: 6, 3: 3}


def test_in_random_states_each_job_goes_on_in_the_size_for_which_it_was_stopped() -> None:
    found = {GROW: 0, SHRINK: 0}
    for seed in range(20 * TIMES):
        try:
            _keeps_its_size(seed, found)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
    assert min(found.values()) > 0, found


def _keeps_its_size(seed: int, found: dict[PreemptionReason, int]) -> None:
    """Jobs are submitted and end, and groups are gone at any time. No capacity gets lost."""
    chance = random.Random(seed)
    world = _elastic_world(seed, chance)
    world.is_open = True
    going_on: dict[int, tuple[PreemptionReason, str, int]] = {}
    names = [name for name in world.queues if name != "c"]
    for turn in range(40):
        for each in world.turn().preempted:
            if each.trainers:
                going_on[each.job_id] = (
                    each.why,
                    world.running[each.job_id].allocation.flavor,
                    each.trainers,
                )
        for job_id in going_on.keys() & {j for j in world.running if not world.stakes[j].is_leaving}:
            why, flavor, trainers = going_on.pop(job_id)
            run = world.running[job_id]
            assert (run.allocation.flavor, run.started_at) == (flavor, world.now), (turn, job_id)
            assert trainers_of(run) >= trainers, (turn, job_id)
            if why in (GROW, SHRINK):
                found[why] += 1
        if not any(stake.is_leaving for stake in world.stakes.values()):
            assert not going_on, (turn, going_on)
        world.leave(lambda _: chance.random() < 0.4)
        for job_id in [*world.running]:
            if chance.random() < 0.1 and not world.stakes[job_id].is_leaving:
                world.end(job_id)
        if chance.random() < 0.5:
            world.submit(_any_gang(1000 + turn, chance, names))
        world.now += chance.choice([1.0, 20.0, 300.0])


def _any_gang(job_id: int, chance: random.Random, queues: list[str]) -> Gang:
    count = chance.choice([1, 1, 2, 4, 8])
    each = gang(job_id, chance.choice(queues), count, priority=chance.choice([-100, 0, 100]))
    return _changed(replace(each, least=chance.choice([0, 1])), chance)


def test_random_sequences_of_resizes_and_preemptions_come_to_rest() -> None:
    """Without further arrivals and ends, no job grows, shrinks and is stopped in turn for ever."""
    found = {GROW: 0, SHRINK: 0}
    for seed in range(100 * TIMES):
        _comes_to_rest(seed, found)
    assert min(found.values()) > 10, found


def _comes_to_rest(seed: int, found: dict[PreemptionReason, int]) -> None:
    chance = random.Random(seed)
    world = _elastic_world(seed, chance)
    quiet = 0
    sizes_before: dict[int, int] = {}
    for turn in range(400):
        decided = world.turn()
        _check(world, decided, seed)
        for each in decided.preempted:
            if each.why in (GROW, SHRINK):
                found[each.why] += 1
            if each.why is GROW:
                sizes_before[each.job_id] = trainers_of(world.running[each.job_id])
        for admit in decided.admitted:
            if turn > _EVENTS + 1:
                before = sizes_before.pop(admit.job_id, 0)
                assert trainers_of(world.running[admit.job_id]) >= before, (seed, admit)
        leaving = any(stake.is_leaving for stake in world.stakes.values())
        quiet = 0 if decided.preempted or decided.admitted or leaving else quiet + 1
        if quiet == 8:
            return
        if chance.random() < 0.7:
            world.leave()
        for job_id in [*world.running] if turn < _EVENTS else ():
            if chance.random() < 0.2 and not world.stakes[job_id].is_leaving:
                world.end(job_id)
        world.now += 100.0
    raise AssertionError(f"seed {seed}: it does not come to rest")


_EVENTS = 20
"""The number of turns in which jobs may end."""


def _elastic_world(seed: int, chance: random.Random) -> World:
    """Return a random world in which many jobs are elastic, and some run for long."""
    world = random_world(seed)
    for name in list(world.waiting.queues()):
        for each in list(world.waiting.in_order(name)):
            world.submit(_changed(each, chance))
    for job_id, run in world.running.items():
        world.running[job_id] = replace(run, gang=_changed(run.gang, chance))
    return world


def _changed(each: Gang, chance: random.Random) -> Gang:
    length = chance.choice([None, 1000.0, 100_000.0])
    return replace(
        each,
        least=chance.choice([each.least, 1]),
        expected=None if length is None else Expected(median=length, high=length),
    )


def _check(world: World, decided: Plan, seed: int) -> None:
    for flavor in world.flavors:
        for name, amount in flavor.capacity.items():
            used = sum(
                total(held_parts(run.gang, run.allocation)).get(name, 0)
                for run in world.running.values()
                if run.allocation.flavor == flavor.name
            )
            assert used <= amount, (seed, flavor.name, name)
    for each in decided.preempted:
        run = world.running[each.job_id]
        rules = world.queues[run.gang.queue].preemption
        if each.why in (GROW, SHRINK):
            assert world.now - run.started_at >= rules.resize_period > 0, (seed, each)
            assert run.gang.least <= each.trainers <= run.gang.parts[0].count, (seed, each)
            assert (each.trainers > trainers_of(run)) is (each.why is GROW), (seed, each)
