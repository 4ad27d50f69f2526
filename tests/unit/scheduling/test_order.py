"""The order of gangs: guarantees, shares of queues and their parents, promises within a queue."""

import math
from collections.abc import Sequence

from job_tracker.scheduling.model import Flavor, Gang, Limit, Part, Promise, Queue, Snapshot, Usage
from job_tracker.scheduling.order import Order
from job_tracker.scheduling.quotas import QuotaTree, quota_rules
from job_tracker.scheduling.shares import Shares
from job_tracker.scheduling.waiting import WaitingGangs

NOW = 1_000.0
FLAVORS = (Flavor(name="default", capacity={"instances": 100}),)
QUOTA = {"default": {"instances": Limit(nominal=2)}}


def gang(job_id: int, queue: str = "a", priority: int = 0, count: int = 1) -> Gang:
    return Gang(job_id=job_id, queue=queue, priority=priority, parts=(Part(count, {}),))


def in_order(
    waiting: Sequence[Gang],
    *queues: Queue,
    used: dict[str, float] | None = None,
    promises: dict[int, float] | None = None,
    seconds: float = 100.0,
) -> list[int]:
    """Return the ids in order, if each gang is charged for this number of seconds when its turn comes."""
    snapshot = Snapshot(
        flavors=FLAVORS,
        queues={each.name: each for each in queues},
        waiting=WaitingGangs(waiting),
        running={},
        usage={name: Usage(NOW, {"default": {"instances": each}}) for name, each in (used or {}).items()},
        promises={job_id: Promise(at, "default") for job_id, at in (promises or {}).items()},
    )
    shares = Shares(FLAVORS, snapshot.queues, snapshot.usage, NOW, 1_000.0)
    tree = QuotaTree(quota_rules(snapshot.queues, FLAVORS))
    found = []
    for each in Order(snapshot, shares, tree):
        found.append(each.job_id)
        needs = {"instances": each.parts[0].count}
        shares.charge(each.queue, "default", needs, seconds)
        tree.use(each.queue, "default", needs)
    return found


def test_within_a_queue_the_highest_priority_goes_first_and_then_the_order_of_submissions() -> None:
    assert in_order([gang(1), gang(2, priority=5), gang(3)]) == [2, 1, 3]


def test_the_queue_with_the_least_share_over_its_weight_goes_first() -> None:
    waiting = [gang(job_id, "a") for job_id in (1, 2, 3, 4)] + [gang(job_id, "b") for job_id in (5, 6, 7, 8)]

    assert in_order(waiting, Queue(name="b", weight=3), used={"b": 1.0}) == [1, 5, 6, 7, 2, 8, 3, 4]


def test_parents_are_compared_before_their_queues() -> None:
    queues = [Queue(name="top", weight=1)] + [Queue(name=name, parent="top") for name in ("b", "c", "d")]
    waiting = [gang(job_id, "a") for job_id in (1, 2, 3, 4)]
    waiting += [gang(5, "b"), gang(6, "c"), gang(7, "d")]

    assert in_order(waiting, *queues) == [1, 5, 2, 6, 3, 7, 4]


def test_a_promise_does_not_go_before_a_queue_that_has_used_less() -> None:
    waiting = [gang(1, "a"), gang(2, "b")]

    assert in_order(waiting, used={"a": 50.0}, promises={1: NOW + 10}) == [2, 1]


def test_within_a_queue_promises_go_before_later_jobs_in_their_order() -> None:
    waiting = [gang(job_id) for job_id in (1, 2, 3, 4)]

    assert in_order(waiting, promises={3: NOW + 10, 2: NOW + 20, 4: math.inf}) == [3, 2, 1, 4]


def test_a_higher_priority_goes_before_promises() -> None:
    waiting = [gang(1), gang(2, priority=1), gang(3, priority=1)]

    assert in_order(waiting, promises={1: NOW + 10, 3: NOW + 20}) == [2, 1, 3]


def test_what_is_guaranteed_goes_before_a_queue_that_has_used_less() -> None:
    waiting = [gang(1, "a"), gang(2, "a"), gang(3, "a"), gang(4, "b")]

    assert in_order(waiting, Queue(name="a", limits=QUOTA), used={"a": 500.0}) == [1, 2, 4, 3]


def test_what_is_guaranteed_to_a_queue_goes_first_also_if_its_parent_borrows() -> None:
    queues = [
        Queue(name="top", limits=QUOTA),
        Queue(name="a", parent="top", limits={"default": {"instances": Limit(nominal=1)}}),
        Queue(name="b", parent="top"),
    ]
    waiting = [gang(1, "b", count=9), gang(2, "a"), gang(3, "c")]

    assert in_order(waiting, *queues, used={"a": 500.0})[0] == 2


def test_the_rest_of_a_closed_queue_is_left_out() -> None:
    snapshot = Snapshot(
        flavors=FLAVORS,
        queues={"top": Queue(name="top"), "b": Queue(name="b", parent="top")},
        waiting=WaitingGangs([gang(1, "a"), gang(2, "a"), gang(3, "b"), gang(4, "b")]),
        running={},
    )
    order = Order(snapshot, Shares(FLAVORS, snapshot.queues, {}, NOW, 1_000.0))
    found = []
    for each in order:
        found.append(each.job_id)
        order.close(each.queue)

    assert found == [1, 3]
