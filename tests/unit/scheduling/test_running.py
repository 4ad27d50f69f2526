"""The running gangs, and the sum of the resources that they hold."""

import random

from job_tracker.scheduling.model import Allocation, Expected, Gang, Part, Running
from job_tracker.scheduling.running import RunningGangs, running_gangs

NOW = 1_000.0


def runs(
    job_id: int,
    queue: str = "a",
    count: int = 1,
    seconds: float | None = 100.0,
    flavor: str = "default",
    *,
    nodes: tuple[str, ...] = (),
    priority: int = 0,
) -> Running:
    expected = None if seconds is None else Expected(median=seconds, high=seconds)
    parts = (Part(count, {"gpu": 2}),)
    gang = Gang(job_id=job_id, queue=queue, priority=priority, parts=parts, expected=expected)
    return Running(gang, Allocation(flavor=flavor, nodes=nodes), NOW)


def held(gangs: RunningGangs) -> dict[tuple[str, str], tuple[int, dict[str, int]]]:
    return {
        (queue, flavor): (each.gangs, each.amounts)
        for queue, by_flavor in gangs.held().items()
        for flavor, each in by_flavor.items()
    }


def test_what_gangs_hold_is_counted_by_queue_and_flavor() -> None:
    gangs = RunningGangs([runs(1), runs(2, count=3), runs(3, "b"), runs(4, flavor="spot")])

    assert held(gangs) == {
        ("a", "default"): (2, {"instances": 4, "gpu": 8}),
        ("b", "default"): (1, {"instances": 1, "gpu": 2}),
        ("a", "spot"): (1, {"instances": 1, "gpu": 2}),
    }
    assert gangs.held_on("default") == {"instances": 5, "gpu": 10}
    assert gangs.held_on("gone") == {}


def test_an_elastic_gang_holds_what_it_got() -> None:
    gang = Gang(job_id=1, parts=(Part(8, {}), Part(2, {})), least=1)
    gangs = RunningGangs([Running(gang, Allocation(trainers=3), NOW)])

    assert gangs.held_on("default") == {"instances": 5}


def test_what_a_gang_holds_on_each_machine_is_known() -> None:
    gangs = RunningGangs([runs(1, count=3, nodes=("m", "m", "n")), runs(2, nodes=("m",)), runs(3)])

    assert gangs.on_machines("default") == {
        "m": {1: {"instances": 2, "gpu": 4}, 2: {"instances": 1, "gpu": 2}},
        "n": {1: {"instances": 1, "gpu": 2}},
    }
    assert gangs.on_machines("gone") == {}


def test_elastic_gangs_are_found_without_the_others() -> None:
    elastic = Running(Gang(job_id=2, parts=(Part(8, {}),), least=1), Allocation(trainers=3), NOW)
    gangs = RunningGangs([runs(1), elastic])

    assert gangs.elastic == {2: elastic}
    gangs.remove(2)
    assert gangs.elastic == {}


def test_gangs_give_back_at_their_planned_ends() -> None:
    gangs = RunningGangs(
        [runs(1, seconds=50), runs(2, seconds=20), runs(3, seconds=50), runs(4, seconds=None)]
    )

    assert list(gangs.returned("default", NOW)) == [
        (NOW + 20, {"instances": 1, "gpu": 2}),
        (NOW + 50, {"instances": 2, "gpu": 4}),
    ]
    assert not gangs.is_any_late(NOW + 19)


def test_a_gang_that_runs_longer_than_planned_is_given_twice_as_long() -> None:
    gangs = RunningGangs([runs(1, seconds=20), runs(2, seconds=50), runs(3, seconds=10)])

    assert gangs.is_any_late(NOW + 20)
    assert [time for time, _ in gangs.returned("default", NOW + 20)] == [NOW + 40, NOW + 40, NOW + 50]


def test_a_gang_with_the_same_id_takes_the_place_of_the_other() -> None:
    gangs = RunningGangs([runs(1), runs(1, "b", 2)])

    assert held(gangs) == {("b", "default"): (1, {"instances": 2, "gpu": 4})}
    assert list(gangs) == [1]
    assert len(gangs) == 1


def test_after_single_changes_all_counts_are_as_if_counted_anew() -> None:
    chance = random.Random(7)
    gangs = RunningGangs()
    for _ in range(2_000):
        job_id = chance.randrange(40)
        if chance.random() < 0.5:
            is_known = job_id in gangs
            assert (gangs.remove(job_id) is not None) == is_known
            continue
        seconds = chance.choice([None, 10.0, 20.0, 30.0])
        count = chance.randint(1, 4)
        nodes = tuple(chance.choices("mno", k=count)) if chance.random() < 0.7 else ()
        queue, flavor = chance.choice("abc"), chance.choice("xy")
        gangs.add(runs(job_id, queue, count, seconds, flavor, nodes=nodes, priority=chance.randrange(3)))
        anew = RunningGangs(gangs.values())
        assert held(gangs) == held(anew)
        assert gangs.held() == anew.held()
        for flavor in "xy":
            assert gangs.on_machines(flavor) == anew.on_machines(flavor)
            assert gangs.held_on(flavor) == anew.held_on(flavor)
            assert list(gangs.returned(flavor, NOW)) == list(anew.returned(flavor, NOW))
    for job_id in list(gangs):
        gangs.remove(job_id)
    assert not held(gangs)
    assert not gangs.is_any_late(NOW + 1e9)


def test_gangs_of_a_plain_mapping_are_counted_and_others_are_taken_as_they_are() -> None:
    gangs = RunningGangs([runs(1)])

    assert running_gangs(gangs) is gangs
    assert held(running_gangs({1: runs(1)})) == held(gangs)
