"""Flavors whose capacity follows machines: closed, unknown, and without some resources."""

import math

from job_tracker.scheduling.checks import fits_ever
from job_tracker.scheduling.explanations import Situation, explain
from job_tracker.scheduling.model import (
    Allocation,
    Flavor,
    Gang,
    Node,
    Part,
    Queue,
    Reason,
    Running,
    Snapshot,
    Where,
)
from job_tracker.scheduling.planner import plan
from job_tracker.scheduling.waiting import WaitingGangs

NOW = 1_000.0
QUEUES = {"default": Queue(name="default")}


def flavor(*nodes: Node, known: bool = True) -> Flavor:
    names = {name for node in nodes for name in node.capacity}
    capacity = {name: sum(node.capacity.get(name, 0) for node in nodes if node.is_open) for name in names}
    return Flavor(name="a100", capacity=capacity, nodes=nodes, is_followed=True, is_known=known)


def node(name: str, instances: int = 4, *, is_open: bool = True, **more: int) -> Node:
    return Node(name=name, capacity={"instances": instances, **more}, is_open=is_open)


def gang(job_id: int, count: int, where: Where | None = None, **each: int) -> Gang:
    return Gang(job_id=job_id, parts=(Part(count, {"instances": 1, **each}, where or Where()),))


def snapshot(of: Flavor, waiting: list[Gang], running: list[Running] | None = None) -> Snapshot:
    return Snapshot(
        flavors=(of,),
        queues=QUEUES,
        waiting=WaitingGangs(waiting),
        running={run.gang.job_id: run for run in running or ()},
    )


def test_what_runs_on_a_closed_machine_takes_nothing_of_the_others() -> None:
    of = flavor(node("a", is_open=False), node("b"))
    runs = Running(gang(1, 4), Allocation(flavor="a100", nodes=("a",) * 4), NOW)

    decided = plan(snapshot(of, [gang(2, 4), gang(3, 1)], [runs]), NOW)

    assert [(each.job_id, each.allocation.nodes) for each in decided.admitted] == [(2, ("b",) * 4)]


def test_a_gang_on_a_machine_that_is_gone_takes_nothing() -> None:
    runs = Running(gang(1, 4), Allocation(flavor="a100", nodes=("gone",) * 4), NOW)
    decided = plan(snapshot(flavor(node("b")), [gang(2, 4)], [runs]), NOW)
    assert [each.job_id for each in decided.admitted] == [2]


def test_nothing_new_starts_where_less_is_there_than_what_runs() -> None:
    of = flavor(node("a", 2), node("b", 1))
    runs = Running(gang(1, 4), Allocation(flavor="a100", nodes=("a",) * 4), NOW)
    decided = plan(snapshot(of, [gang(2, 2), gang(3, 1)], [runs]), NOW)
    assert not decided.admitted
    assert decided.reserved[0].reasons == (Reason.CAPACITY,)


def test_a_resource_that_no_machine_has_is_not_there() -> None:
    of, wanted = flavor(node("a")), gang(1, 1, None, **{"nvidia.com/gpu": 1})
    assert not plan(snapshot(of, [wanted]), NOW).admitted
    problem = fits_ever(QUEUES, (of,), wanted)
    assert problem is not None
    assert "1 nvidia.com/gpu" in problem.summary


def test_a_job_waits_with_a_reason_while_the_machines_are_not_known() -> None:
    of, wanted = flavor(known=False), gang(1, 2)
    decided = plan(snapshot(of, [wanted]), NOW)
    assert not decided.admitted
    assert decided.reserved[0].reasons == (Reason.UNKNOWN_CAPACITY,)
    assert decided.reserved[0].promise.at == math.inf
    assert fits_ever(QUEUES, (of,), wanted) is None


def test_a_job_is_refused_if_no_machine_is_of_its_kind() -> None:
    of, wanted = flavor(node("a")), gang(1, 2, Where(selector=(("disk", "ssd"),)))
    assert fits_ever(QUEUES, (of,), wanted) is not None
    assert fits_ever(QUEUES, (flavor(),), gang(1, 1)) is not None


def test_as_many_fit_as_single_machines_have_room_for() -> None:
    of = flavor(node("a", 8, gpu=3), node("b", 8, gpu=3))
    problem = fits_ever(QUEUES, (of,), gang(1, 3, gpu=2))
    assert problem is not None
    assert "The largest that fits in the capacity and the quota of the queue default is 2 trainers" in (
        problem.summary
    )


def test_while_the_machines_are_not_known_an_explanation_says_so_and_promises_nothing() -> None:
    state = snapshot(flavor(known=False), [gang(1, 2), gang(2, 1)])
    situation = Situation(state, plan(state, NOW), NOW)
    found = explain(situation, 1)
    assert found.reasons == (Reason.UNKNOWN_CAPACITY,)
    assert found.estimate is None


def test_a_job_runs_on_the_flavor_with_the_labels_that_it_asks_for() -> None:
    flavors = tuple(
        Flavor(name=name, capacity={"instances": 4}, labels={"gpu": name}) for name in ("a100", "t4")
    )
    waiting = WaitingGangs([gang(1, 1, Where(selector=(("gpu", "t4"), ("disk", "ssd")))), gang(2, 1)])
    state = Snapshot(flavors=flavors, queues=QUEUES, waiting=waiting, running={})
    decided = plan(state, NOW)
    assert {each.job_id: each.allocation.flavor for each in decided.admitted} == {1: "t4", 2: "a100"}
    none = gang(3, 1, Where(selector=(("gpu", "h100"),)))
    assert fits_ever(QUEUES, flavors, none) is not None
