import math
import random
from collections import Counter

import pytest

from job_tracker.scheduling.checks import fits_ever
from job_tracker.scheduling.model import (
    Allocation,
    Expected,
    Flavor,
    Gang,
    Limit,
    Node,
    Part,
    Plan,
    Promise,
    Queue,
    Reason,
    Running,
    Snapshot,
)
from job_tracker.scheduling.planner import PlannerOptions, plan
from job_tracker.scheduling.waiting import WaitingGangs

NOW = 1_000.0


def gang(job_id: int, count: int = 1, seconds: float | None = None, **more: object) -> Gang:
    expected = None if seconds is None else Expected(median=seconds, high=seconds)
    return Gang(job_id=job_id, parts=(Part(count, {}),), expected=expected, **more)  # type: ignore[arg-type]


def snapshot(
    capacity: int, waiting: list[Gang], running: list[Running] | None = None, **more: object
) -> Snapshot:
    values: dict[str, object] = {
        "flavors": (Flavor(name="default", capacity={"instances": capacity}),),
        "queues": {"default": Queue(name="default")},
        "waiting": WaitingGangs(waiting),
        "running": {run.gang.job_id: run for run in running or ()},
    }
    return Snapshot(**{**values, **more})  # type: ignore[arg-type]


def runs(job_id: int, count: int, seconds: float | None = None, **more: object) -> Running:
    return Running(gang(job_id, count, seconds, **more), Allocation(), NOW)


def started(decided: Plan) -> list[int]:
    return [admit.job_id for admit in decided.admitted]


def test_jobs_start_in_the_order_of_submissions_while_they_fit() -> None:
    assert started(plan(snapshot(4, [gang(3), gang(1, 2), gang(2)]), NOW)) == [1, 2, 3]


def test_a_short_job_starts_before_a_large_one_only_if_it_ends_in_time() -> None:
    waiting = [gang(2, 8, 50), gang(3, 1, 100), gang(4, 1, 101)]

    decided = plan(snapshot(8, waiting, [runs(1, 6, 100)]), NOW)

    assert started(decided) == [3]
    assert [(r.job_id, r.promise.at, r.reasons[0]) for r in decided.reserved] == [
        (2, NOW + 100, Reason.CAPACITY),
        (4, NOW + 150, Reason.RESERVED),
    ]


def test_as_many_jobs_as_the_limit_overtake_a_job_to_which_no_start_can_be_promised() -> None:
    waiting = [gang(2, 8), *(gang(job_id) for job_id in range(3, 9))]
    state = snapshot(8, waiting, [runs(1, 4)], promises={2: Promise(math.inf, "", 6)})

    decided = plan(state, NOW, PlannerOptions(overtake_limit=8))

    assert started(decided) == [3, 4]
    assert decided.reserved[0].promise.overtaken == 8


def test_a_job_that_no_longer_fits_waits_and_holds_back_no_other() -> None:
    decided = plan(snapshot(4, [gang(1, 8), *(gang(job_id) for job_id in (2, 3, 4, 5))]), NOW)

    assert started(decided) == [2, 3, 4, 5]
    assert decided.reserved[0].reasons == (Reason.LOST_CAPACITY,)


def test_an_elastic_gang_gets_as_many_trainers_as_fit() -> None:
    decided = plan(snapshot(8, [gang(2, 8, least=2)], [runs(1, 3)]), NOW)

    assert decided.admitted[0].allocation.trainers == 5


def test_each_instance_fits_on_one_machine() -> None:
    nodes = tuple(Node(name=name, capacity={"instances": 9, "gpu": 4}) for name in ("a", "b"))
    flavor = Flavor(name="default", capacity={"instances": 18, "gpu": 8}, nodes=nodes)
    wide = Gang(job_id=2, parts=(Part(1, {"gpu": 4}),))
    holders = [
        Running(Gang(job_id=-n, parts=(Part(1, {"gpu": 2}),)), Allocation(nodes=(name,)), NOW)
        for n, name in ((8, "a"), (9, "b"))
    ]

    full = plan(snapshot(0, [wide], holders, flavors=(flavor,)), NOW)
    free = plan(snapshot(0, [wide], holders[:1], flavors=(flavor,)), NOW)

    assert full.reserved[0].reasons == (Reason.FRAGMENTED,)
    assert free.admitted[0].allocation.nodes == ("b",)


def test_a_queue_borrows_what_another_does_not_use_up_to_its_limit() -> None:
    queues = {
        "a": Queue(name="a", limits={"default": {"instances": Limit(nominal=2, borrow=1)}}),
        "b": Queue(name="b", limits={"default": {"instances": Limit(nominal=6, lend=2)}}),
    }
    waiting = [gang(job_id, queue="a") for job_id in range(1, 6)]

    decided = plan(snapshot(8, waiting, queues=queues), NOW)

    assert started(decided) == [1, 2, 3]
    assert decided.reserved[0].reasons[0] is Reason.QUOTA


def test_a_queue_runs_no_more_jobs_than_it_may() -> None:
    decided = plan(
        snapshot(8, [gang(1), gang(2)], queues={"default": Queue(name="default", max_running=1)}), NOW
    )

    assert started(decided) == [1]
    assert decided.reserved[0].reasons[0] is Reason.MAX_RUNNING


def test_a_promise_moves_later_for_a_higher_priority_and_says_so() -> None:
    state = snapshot(
        8,
        [gang(2, 8, 50), gang(3, 8, 70, priority=5)],
        [runs(1, 8, 100)],
        promises={2: Promise(NOW + 100, "default")},
    )

    moved = {reserve.job_id: reserve for reserve in plan(state, NOW).reserved}

    assert moved[3].promise.at == NOW + 100
    assert moved[2].promise.at == NOW + 170
    assert moved[2].moved_because == "A job with a higher priority goes first."


def test_nothing_starts_while_the_service_has_no_room() -> None:
    decided = plan(snapshot(8, [gang(1, 1, 5)], is_open=False), NOW)

    assert not decided.admitted
    assert decided.reserved[0].reasons == (Reason.ROOM,)
    assert decided.reserved[0].promise.at == NOW


def test_without_room_promises_stay_and_what_moves_is_explained_by_it() -> None:
    waiting = [gang(1, 8, 50), gang(2, 8, 50)]
    promises = {1: Promise(NOW - 10, "default"), 2: Promise(NOW + 40, "default")}

    decided = plan(snapshot(8, waiting, promises=promises, is_open=False), NOW)

    first, second = decided.reserved
    assert (first.promise, first.moved_because) == (promises[1], "")
    assert second.promise.at == NOW + 50
    assert second.moved_because == "The machine of the service has no room for launches."


def test_jobs_start_in_their_order_once_there_is_room() -> None:
    waiting = [gang(1, 8, 50), gang(2, 8, 50)]
    closed = plan(snapshot(8, waiting, is_open=False), NOW)
    promises = {each.job_id: each.promise for each in closed.reserved}

    assert started(plan(snapshot(8, waiting, promises=promises), NOW + 60)) == [1]


def test_a_job_that_can_never_fit_is_refused_with_the_largest_that_does() -> None:
    state = snapshot(8, [])

    refused = fits_ever(state.queues, state.flavors, gang(1, 9))

    assert refused is not None
    assert "9 instances" in refused.summary
    assert "is 8 trainers" in refused.summary
    assert fits_ever(state.queues, state.flavors, gang(1, 9, least=8)) is None


def random_state(seed: int) -> Snapshot:
    chance = random.Random(seed)
    capacity = chance.randint(1, 24)
    queues = {"c": Queue(name="c")}
    for name in "abd":
        limit = Limit(
            nominal=chance.randint(0, max(1, capacity // 3)),
            borrow=chance.choice([None, 0, 4]),
            lend=chance.choice([None, 0, 2]),
        )
        queues[name] = Queue(
            name=name,
            parent=chance.choice(["", "c"]),
            weight=chance.choice([1.0, 3.0]),
            limits={"default": {"instances": limit}} if chance.random() < 0.6 else {},
            max_running=chance.choice([None, None, 3]),
        )

    def some(job_id: int) -> Gang:
        count = chance.choice([1, 1, 2, 4, 8])
        return gang(
            job_id,
            count,
            chance.choice([None, 10.0, 100.0, 1000.0]),
            queue=chance.choice("abd"),
            priority=chance.choice([0, 0, 1]),
            least=chance.choice([0, 0, 1]),
        )

    state = snapshot(capacity, [some(job_id) for job_id in range(chance.randint(0, 12))], queues=queues)
    before = plan(state, NOW - 5)
    waiting = WaitingGangs(some(job_id) for job_id in range(100, 100 + chance.randint(1, 20)))
    running = {}
    for admit in before.admitted:
        held = state.waiting.get(admit.job_id)
        assert held is not None
        running[admit.job_id] = Running(held, admit.allocation, NOW - 5)
    return Snapshot(flavors=state.flavors, queues=queues, waiting=waiting, running=running)


def held(run: Gang, allocation: Allocation) -> int:
    return allocation.trainers or run.parts[0].count


def after(state: Snapshot, decided: Plan) -> Snapshot:
    running = dict(state.running)
    left = WaitingGangs(g for queue in state.waiting.queues() for g in state.waiting.in_order(queue))
    for admit in decided.admitted:
        one = left.get(admit.job_id)
        assert one is not None
        left.remove(admit.job_id)
        running[admit.job_id] = Running(one, admit.allocation, NOW)
    return Snapshot(
        flavors=state.flavors,
        queues=state.queues,
        waiting=left,
        running=running,
        promises={reserve.job_id: reserve.promise for reserve in decided.reserved},
    )


@pytest.mark.parametrize("block", range(4))
def test_in_random_states_all_rules_hold(block: int) -> None:
    for seed in (310 + block * 97, *range(block * 75, block * 75 + 75)):
        state = random_state(seed)
        decided = plan(state, NOW)
        assert decided == plan(state, NOW), seed
        then = after(state, decided)
        use = Counter[str]()
        count = Counter[str]()
        for run in then.running.values():
            use[run.gang.queue] += held(run.gang, run.allocation)
            count[run.gang.queue] += 1
            least = run.gang.least or run.gang.parts[0].count
            assert least <= held(run.gang, run.allocation) <= run.gang.parts[0].count, seed
        assert sum(use.values()) <= state.flavors[0].capacity["instances"], seed
        for name, queue in state.queues.items():
            limit = queue.limits.get("default", {}).get("instances")
            if limit is not None and limit.borrow is not None:
                assert use[name] <= limit.nominal + limit.borrow, seed
            assert queue.max_running is None or count[name] <= queue.max_running, seed
        for reserve in decided.reserved:
            assert reserve.reasons, seed
        later = {reserve.job_id: reserve for reserve in plan(then, NOW).reserved}
        for reserve in decided.reserved:
            if reserve.promise.at < math.inf and reserve.job_id in later:
                moved = later[reserve.job_id]
                if moved.moved_because != "Queues that have used less for their weight go first.":
                    assert moved.promise.at <= reserve.promise.at + 1e-6, (seed, reserve)


def test_lent_quota_goes_back_to_its_owner_when_a_borrower_ends() -> None:
    limits = {"default": {"instances": Limit(nominal=4)}}
    queues = {name: Queue(name=name, limits=limits) for name in ("a", "b")}
    borrowers = [runs(job_id, 1, None, queue="a") for job_id in range(8)]
    waiting = [gang(job_id, queue="a", priority=9) for job_id in range(10, 15)] + [gang(20, 4, queue="b")]
    state = snapshot(8, waiting, borrowers, queues=queues)

    for ended in range(1, 5):
        state = after(state, plan(state, NOW))
        running = {job_id: run for job_id, run in state.running.items() if job_id >= ended}
        state = Snapshot(
            flavors=state.flavors,
            queues=state.queues,
            waiting=state.waiting,
            running=running,
            promises=state.promises,
        )

    assert 20 in started(plan(state, NOW))


@pytest.mark.parametrize("seed", range(10))
def test_a_large_job_starts_at_last_while_small_ones_of_its_queue_keep_coming(seed: int) -> None:
    chance = random.Random(seed)
    state = snapshot(8, [gang(50, 8)], [runs(job_id, 1) for job_id in range(6)])
    for turn in range(40):
        decided = plan(state, NOW + turn)
        if 50 in started(decided):
            return
        state = after(state, decided)
        ended = chance.choice(sorted(state.running))
        running = {job_id: run for job_id, run in state.running.items() if job_id != ended}
        waiting = WaitingGangs(state.waiting.in_order("default"))
        waiting.add(gang(100 + turn))
        state = Snapshot(
            flavors=state.flavors,
            queues=state.queues,
            waiting=waiting,
            running=running,
            promises=state.promises,
        )
    pytest.fail("the large job never started")
