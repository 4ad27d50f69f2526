"""Elastic jobs change their size although some of their machines are closed or gone."""

from dataclasses import replace

import pytest

from job_tracker.scheduling.model import Allocation, Expected, Flavor, Node, Preempt, PreemptionReason, Queue
from tests.support.preempting import World, gang


@pytest.mark.parametrize("is_gone", [False, True], ids=["closed", "gone"])
def test_a_job_that_keeps_ranks_on_a_machine_that_is_no_longer_offered_shrinks_for_another(
    is_gone: bool,
) -> None:
    first, second = (Node(name=f"n{n}", capacity={"instances": 4}, is_open=n == 2) for n in (1, 2))
    nodes = (second,) if is_gone else (first, second)
    flavor = Flavor(name="default", capacity={"instances": 4}, nodes=nodes, is_followed=True)
    world = World(Queue(name="a"), Queue(name="b"), flavors=[flavor])
    day = Expected(median=86400.0, high=86400.0)
    world.run(replace(gang(1, count=8, least=2), expected=day), trainers=8)
    on_both = Allocation(trainers=8, nodes=("n1",) * 4 + ("n2",) * 4)
    world.running[1] = replace(world.running[1], allocation=on_both)
    world.submit(gang(2, count=3), gang(3, "b"))
    shrinks = Preempt(job_id=1, attempt=1, by_job=2, why=PreemptionReason.SHRINK, trainers=5)
    assert world.turn().preempted == (shrinks,)
