"""Reasons why jobs wait, holders and estimates, in any state."""

import math
from dataclasses import replace

import pytest

from job_tracker.scheduling.explanations import Situation, explain
from job_tracker.scheduling.model import (
    Allocation,
    Expected,
    Flavor,
    Gang,
    Limit,
    Part,
    Promise,
    Queue,
    Reason,
    Running,
    Snapshot,
)
from job_tracker.scheduling.planner import PlannerOptions, plan
from job_tracker.scheduling.waiting import WaitingGangs
from tests.support.random_queues import NOW, gangs_of, random_state, started


def gang(job_id: int, count: int = 1, queue: str = "default") -> Gang:
    expected = Expected(median=100.0, high=100.0)
    return Gang(job_id=job_id, parts=(Part(count, {}),), queue=queue, expected=expected)


def snapshot(*waiting: Gang, running: tuple[Gang, ...] = (), **queues: Queue) -> Snapshot:
    return Snapshot(
        flavors=(Flavor(name="default", capacity={"instances": 8}),),
        queues={"default": Queue(name="default"), **queues},
        waiting=WaitingGangs(waiting),
        running={each.job_id: Running(each, Allocation(), NOW) for each in running},
    )


def situation(seen: Snapshot, options: PlannerOptions | None = None) -> Situation:
    return Situation(seen, plan(seen, NOW, options), NOW)


@pytest.mark.parametrize("seed", range(40))
def test_each_waiting_job_has_reasons_an_estimate_and_a_remedy(seed: int) -> None:
    state = random_state(seed)
    found = situation(started(state, plan(state, NOW), NOW))
    for each in gangs_of(found.snapshot)[:4]:
        why = explain(found, each.job_id)
        assert why.reasons
        assert len(set(why.reasons)) == len(why.reasons)
        assert why.remedy.text
        never = why.reasons[0] in (Reason.LOST_CAPACITY, Reason.MAX_RUNNING)
        assert never or why.estimate is not None
        if why.estimate is not None:
            assert NOW <= why.estimate.median <= why.estimate.high < math.inf


def test_a_job_that_the_plan_does_not_name_has_the_reason_of_the_first_of_its_queue() -> None:
    options = PlannerOptions(reservations=1)
    seen = situation(snapshot(gang(2, 8), gang(3), gang(4), running=(gang(1, 8),)), options)
    assert explain(seen, 3, options).reasons == (Reason.ORDER, Reason.CAPACITY)


def test_a_job_of_another_queue_waits_for_its_share() -> None:
    options = PlannerOptions(reservations=1)
    other = Queue(name="other")
    seen = snapshot(gang(2, 8), gang(3, queue="other"), running=(gang(1, 8),), other=other)
    assert explain(situation(seen, options), 2, options).reasons == (Reason.SHARE, Reason.CAPACITY)


def test_a_job_that_no_longer_fits_has_no_estimate() -> None:
    why = explain(situation(snapshot(gang(2, 9))), 2)
    assert why.reasons[0] is Reason.LOST_CAPACITY
    assert why.estimate is None
    assert why.remedy.text == "Submit it with 8 instead of 9 instances (PARALLEL_INSTANCES)."


def test_a_job_of_a_closed_queue_waits_for_the_queue_and_has_no_estimate() -> None:
    closed = Queue(name="default", max_running=0)
    for each in (2, 3):
        why = explain(situation(snapshot(gang(2), gang(3), default=closed)), each)
        assert why.reasons[0] is Reason.MAX_RUNNING
        assert why.estimate is None


def test_the_holders_are_those_of_the_queue_if_its_quota_binds() -> None:
    limits = {"default": {"instances": Limit(nominal=2, borrow=0)}}
    a, b = Queue(name="a", limits=limits), Queue(name="b")
    seen = snapshot(gang(4, queue="a"), running=(gang(1, 2, "a"), gang(2, 2, "b")), a=a, b=b)
    assert explain(situation(seen), 4).holders == (1,)
    full = replace(seen, waiting=WaitingGangs([gang(5, 8, "b")]))
    assert explain(situation(full), 5).holders == (1, 2)


def test_a_job_that_does_not_wait_is_not_explained() -> None:
    with pytest.raises(KeyError, match="job 7 does not wait"):
        explain(situation(snapshot()), 7)


def test_a_promise_comes_with_the_explanation() -> None:
    seen = replace(snapshot(gang(2, 8), running=(gang(1, 8),)), promises={2: Promise(NOW + 50, "default")})
    reserve = explain(situation(seen), 2).reserve
    assert reserve is not None
    assert reserve.promise.at == NOW + 100
    assert reserve.moved_because
