"""Launches for the cluster's own queue: a few of each queue wait there, in the order of the queue."""

import math
from typing import Any

import pytest

from job_tracker.scheduling.explanations import Situation, explain
from job_tracker.scheduling.model import Allocation, Gang, Part, Reason, Running, Snapshot
from job_tracker.scheduling.planner import PlannerOptions, plan
from job_tracker.scheduling.recipes import QueueRecipe
from job_tracker.scheduling.tree import delegated_pool, tree_of
from job_tracker.scheduling.waiting import WaitingGangs

POOL = delegated_pool({"normal": 0})


def gang(job_id: int, queue: str = "default", priority: int = 0) -> Gang:
    return Gang(job_id=job_id, queue=queue, priority=priority, parts=(Part(500, {"instances": 1}),))


def snapshot(*waiting: Gang, gated: tuple[Gang, ...] = (), running: tuple[Gang, ...] = ()) -> Snapshot:
    live = {each.job_id: Running(each, Allocation(), 0.0) for each in (*gated, *running)}
    return Snapshot(
        flavors=POOL.flavors,
        queues=tree_of(POOL, {}).queues,
        waiting=WaitingGangs(waiting),
        running=live,
        gated={each.job_id for each in gated},
    )


def launched(state: Snapshot, most: int = 2) -> list[int]:
    return [each.job_id for each in plan(state, 0.0, PlannerOptions(delegated=most)).admitted]


def test_as_many_jobs_of_each_queue_are_launched_as_may_wait_there() -> None:
    state = snapshot(*(gang(n, queue) for n, queue in enumerate("aaabbb", 1)), gated=(gang(9, "a"),))
    assert launched(state) == [1, 4, 5]


def test_what_runs_there_does_not_count_however_much_it_is() -> None:
    assert launched(snapshot(gang(5), running=tuple(gang(n) for n in range(1, 5)))) == [5]


def test_a_higher_priority_is_handed_on_first() -> None:
    assert launched(snapshot(gang(1), gang(2), gang(3, priority=100)), most=1) == [3]


def test_jobs_behind_wait_for_the_cluster_without_an_estimate_or_a_remedy() -> None:
    state = snapshot(gang(2), gang(3), gated=(gang(1),))
    decided = plan(state, 0.0, PlannerOptions(delegated=1))
    situation = Situation(state, decided, 0.0)
    first, second = explain(situation, 2), explain(situation, 3)
    assert (first.reasons, first.estimate, first.remedy.changes) == ((Reason.DELEGATED,), None, ())
    assert second.reasons == (Reason.ORDER, Reason.DELEGATED)
    assert decided.reserved[0].promise.at == math.inf


def test_without_room_on_this_machine_nothing_is_launched() -> None:
    state = snapshot(gang(1))
    closed = Snapshot(
        flavors=state.flavors, queues=state.queues, waiting=state.waiting, running={}, is_open=False
    )
    decided = plan(closed, 0.0, PlannerOptions(delegated=1))
    assert not decided.admitted
    assert decided.reserved[0].reasons == (Reason.ROOM,)


def test_the_size_of_a_job_is_not_limited_by_a_capacity() -> None:
    assert tree_of(POOL, {}).most_instances == 10_000


@pytest.mark.parametrize("field", [{"weight": 2.0}, {"max_running": 1}, {"preemption": {"reclaim": False}}])
def test_what_only_the_planner_uses_is_refused_in_a_queue(field: dict[str, Any]) -> None:
    name = next(iter(field))
    with pytest.raises(ValueError, match=rf"team\.{name}: not allowed with scheduling\.delegate"):
        tree_of(POOL, {"team": QueueRecipe(**field)})


def test_what_the_service_itself_decides_is_allowed_in_a_queue() -> None:
    recipe = QueueRecipe(max_queued=5, max_priority="normal", projects=("vision",))
    assert tree_of(POOL, {"team": recipe}).of_project("vision") == ["default", "team"]
