"""The changes that would let a waiting job start."""

import random
from dataclasses import replace

import pytest

from job_tracker.scheduling.changes import MoreCapacity, applied
from job_tracker.scheduling.explanations import Situation, explain
from job_tracker.scheduling.model import (
    INSTANCES,
    Allocation,
    Expected,
    Flavor,
    Gang,
    Limit,
    Node,
    Part,
    PreemptionRules,
    Queue,
    Running,
    Snapshot,
    Stake,
)
from job_tracker.scheduling.planner import plan
from job_tracker.scheduling.remedies import Cure, Remedy
from job_tracker.scheduling.waiting import WaitingGangs
from tests.support.random_queues import CLASSES, NOW, gangs_of, random_state, started

FLAVOR = Flavor(name="default", capacity={INSTANCES: 8})


def gang(job_id: int, count: int = 1, seconds: float | None = 100.0, **more: object) -> Gang:
    expected = None if seconds is None else Expected(median=seconds, high=seconds)
    return Gang(job_id=job_id, parts=(Part(count, {}),), expected=expected, **more)  # type: ignore[arg-type]


def snapshot(*waiting: Gang, running: tuple[Gang, ...] = (), **more: object) -> Snapshot:
    values: dict[str, object] = {
        "flavors": (FLAVOR,),
        "queues": {"default": Queue(name="default")},
        "waiting": WaitingGangs(waiting),
        "running": {each.job_id: Running(each, Allocation(), NOW) for each in running},
    }
    return Snapshot(**{**values, **more})  # type: ignore[arg-type]


def remedy(seen: Snapshot, job_id: int) -> Remedy:
    return explain(Situation(seen, plan(seen, NOW), NOW), job_id, priorities=CLASSES).remedy


def starts(seen: Snapshot, job_id: int, found: Remedy) -> bool:
    one = seen.waiting.get(job_id)
    assert one is not None
    changed = applied(seen, one, found.changes)
    return job_id in [admit.job_id for admit in plan(changed, NOW).admitted]


def test_a_higher_priority_that_stops_others_is_a_remedy() -> None:
    rules = PreemptionRules(by_priority=True)
    seen = snapshot(
        gang(2, 8),
        running=(gang(1, 8),),
        queues={"default": Queue(name="default", preemption=rules)},
        stakes={1: Stake(attempt=1, saved_at=NOW)},
    )
    found = remedy(seen, 2)
    assert (found.cure, found.is_verified) == (Cure.PRIORITY, True)
    assert found.text == "Submit it with the priority high. Then other jobs are stopped for it."
    urgent = replace(seen, waiting=WaitingGangs([gang(2, 8, priority=100)]))
    assert remedy(urgent, 2).text == "Wait: the next pass stops other jobs for it."


@pytest.mark.parametrize("block", range(4))
def test_in_random_states_the_first_remedy_lets_the_job_start(block: int) -> None:
    for seed in range(block * 15, block * 15 + 15):
        state = random_state(seed)
        state = started(state, plan(state, NOW), NOW)
        for each in random.Random(seed).sample(gangs_of(state), min(1, len(state.waiting))):
            found = remedy(state, each.job_id)
            assert found.is_verified, (seed, each.job_id)
            assert starts(state, each.job_id, found), (seed, each.job_id, found)


def test_without_time_only_the_remedy_that_changes_the_most_is_tried() -> None:
    state = snapshot(gang(2, 8), running=(gang(1, 4),))
    decided = plan(state, NOW)

    found = explain(Situation(state, decided, NOW), 2, priorities=CLASSES, until=0.0).remedy

    assert found.cure is Cure.CAPACITY
    assert found.is_verified
    assert starts(state, 2, found)


def test_how_much_other_jobs_need_is_not_said() -> None:
    others = tuple(gang(number, 7, None, queue="other", priority=5) for number in range(3, 30))
    queues = {"default": Queue(name="default"), "other": Queue(name="other")}
    state = snapshot(gang(2, 2, None), *others, running=(gang(1, 8, None),), queues=queues)
    whole = MoreCapacity.for_all(state, FLAVOR, (Part(2, {}),))
    assert whole.more == {INSTANCES: 2 + 2 + 27 * 7}
    assert whole.text == (
        "Raise the capacity of the flavor default by 2 instances, and by the needs of the jobs ahead of this "
        "one."
    )
    on_machines = replace(FLAVOR, nodes=(Node(name="a", capacity={INSTANCES: 8}),))
    assert MoreCapacity.for_all(state, on_machines, (Part(2, {}),)).text == (
        "Add machines to the flavor default: 2 with 1 instance, and machines for the jobs ahead of this one."
    )


def test_fewer_instances_come_first_if_they_fit() -> None:
    found = remedy(snapshot(gang(2, 8), running=(gang(1, 4),)), 2)
    assert found.cure is Cure.INSTANCES
    assert found.text == "Submit it with 4 instead of 8 instances (PARALLEL_INSTANCES)."


def test_no_more_instances_are_given_up_than_must_be() -> None:
    found = remedy(snapshot(gang(2, 8), running=(gang(1, 1),)), 2)
    assert found.text == "Submit it with 7 instead of 8 instances (PARALLEL_INSTANCES)."


def test_no_more_capacity_is_added_than_must_be() -> None:
    waiting = (gang(2, 3, None), gang(3, 2, None), gang(4, 4, None))
    found = remedy(snapshot(*waiting, running=(gang(1, 8, None),)), 4)
    assert found.text == "Raise the capacity of the flavor default by 9 instances."
    smaller = Flavor(name="default", capacity={INSTANCES: 5})
    others = remedy(snapshot(gang(2, 1, None), running=(gang(1, 8, None),), flavors=(smaller,)), 2)
    assert others.text == "Raise the capacity of the flavor default by 4 instances."


def test_a_job_of_unknown_length_is_to_say_how_long_it_runs_if_a_gap_is_free() -> None:
    found = remedy(snapshot(gang(2, 8, 50), gang(3, 1, None), running=(gang(1, 6, 600),)), 3)
    assert found.cure is Cure.EXPECTED
    assert found.text == "If it runs at most 10 min, say so: submit it with --expected 10m."


def test_the_lowest_class_of_priorities_that_helps_is_named() -> None:
    waiting = (gang(2, 8, 50), gang(3, 1, 300))
    found = remedy(snapshot(*waiting, running=(gang(1, 7, 100),)), 3)
    assert (found.cure, found.text) == (Cure.PRIORITY, "Submit it with the priority high.")


def test_a_class_above_that_of_the_queue_is_not_proposed() -> None:
    waiting = (gang(2, 8, 50), gang(3, 1, 300))
    queues = {"default": Queue(name="default", max_priority=0)}
    found = remedy(snapshot(*waiting, running=(gang(1, 7, 100),), queues=queues), 3)
    assert found.cure is not Cure.PRIORITY


def test_another_flavor_is_proposed_to_a_job_that_names_one() -> None:
    flavors = (FLAVOR, Flavor(name="spot", capacity={INSTANCES: 8}))
    found = remedy(snapshot(gang(2, 1, flavors=("default",)), running=(gang(1, 8),), flavors=flavors), 2)
    assert (found.cure, found.text) == (Cure.FLAVOR, "Submit it for the flavor spot (--flavor spot).")


def test_an_operator_raises_what_the_queue_may_run() -> None:
    queues = {"default": Queue(name="default", max_running=1)}
    found = remedy(snapshot(gang(2), running=(gang(1),), queues=queues), 2)
    assert (found.cure, found.text) == (Cure.QUEUE, "Raise max_running of the queue default by 1.")


def test_an_operator_lets_the_queue_borrow_more() -> None:
    limits = {"default": {INSTANCES: Limit(nominal=2, borrow=0)}}
    queues = {"default": Queue(name="default", limits=limits)}
    found = remedy(snapshot(gang(2), running=(gang(1, 2),), queues=queues), 2)
    assert (found.cure, found.text) == (Cure.QUEUE, "Let the queue default borrow 1 instance more.")


def test_an_operator_adds_as_much_capacity_as_the_job_needs() -> None:
    found = remedy(snapshot(gang(2), running=(gang(1, 8),)), 2)
    assert (found.cure, found.text) == (
        Cure.CAPACITY,
        "Raise the capacity of the flavor default by 1 instance.",
    )


def test_a_queue_at_its_quota_on_full_machines_needs_both() -> None:
    limits = {"default": {INSTANCES: Limit(nominal=0, borrow=2)}}
    queues = {"default": Queue(name="default"), "small": Queue(name="small", limits=limits)}
    seen = snapshot(gang(2, 4, queue="small", least=4), running=(gang(1, 8),), queues=queues)
    assert starts(seen, 2, remedy(seen, 2))


def test_machines_are_added_where_machines_are_known() -> None:
    nodes = (Node(name="a", capacity={INSTANCES: 8, "gpu": 2}),)
    flavor = Flavor(name="default", capacity={INSTANCES: 8, "gpu": 2}, nodes=nodes)
    wide = Gang(job_id=2, parts=(Part(1, {"gpu": 4}),))
    found = remedy(snapshot(wide, flavors=(flavor,)), 2)
    assert found.text == "Add machines to the flavor default: 1 with 1 instance, 4 gpu."
    assert isinstance(found.changes[0], MoreCapacity)


def test_room_comes_first_while_the_machine_has_none() -> None:
    free = replace(snapshot(gang(2)), is_open=False)
    assert remedy(free, 2).text == "Free memory or disk space on the machine of the service."
    full = replace(snapshot(gang(2), running=(gang(1, 8),)), is_open=False)
    assert remedy(full, 2).cure is Cure.ROOM
    assert starts(full, 2, remedy(full, 2))


def test_a_job_that_the_next_pass_starts_only_has_to_wait() -> None:
    found = remedy(snapshot(gang(2)), 2)
    assert (found.cure, found.changes, found.is_verified) == (Cure.WAIT, (), True)
