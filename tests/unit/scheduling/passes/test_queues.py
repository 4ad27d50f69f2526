"""Passes over several queues: shares against promises, and guarantees."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from job_tracker.scheduling.model import (
    Allocation,
    Expected,
    Flavor,
    Gang,
    Limit,
    Part,
    Plan,
    Promise,
    Queue,
    Reason,
    Reserve,
    Running,
    Snapshot,
    Usage,
)
from job_tracker.scheduling.planner import PlannerOptions, plan
from job_tracker.scheduling.waiting import WaitingGangs

NOW = 1_000_000.0
LESS_USED = "Queues that have used less for their weight go first."


def gang(job_id: int, queue: str = "a", count: int = 1, seconds: float | None = 100.0) -> Gang:
    expected = None if seconds is None else Expected(median=seconds, high=seconds)
    return Gang(job_id=job_id, queue=queue, parts=(Part(count, {}),), expected=expected)


class Cluster:
    """Waiting and running gangs on eight instances, and plans that are carried out."""

    def __init__(self, *queues: Queue, capacity: int = 8) -> None:
        self.flavors: tuple[Flavor, ...] = (Flavor(name="default", capacity={"instances": capacity}),)
        self.queues = {each.name: each for each in queues}
        self.waiting = WaitingGangs()
        self.running: dict[int, Running] = {}
        self.usage: dict[str, Usage] = {}
        self.promises: dict[int, Promise] = {}

    def submit(self, *gangs: Gang) -> None:
        for each in gangs:
            self.waiting.add(each)

    def run(self, *gangs: Gang) -> None:
        self.running.update({each.job_id: Running(each, Allocation(), NOW) for each in gangs})

    def used(self, queue: str, seconds: float) -> None:
        self.usage[queue] = Usage(NOW, {"default": {"instances": seconds}})

    def turn(self, now: float = NOW, options: PlannerOptions | None = None) -> Plan:
        """Plan, and carry it out."""
        snapshot = Snapshot(
            flavors=self.flavors,
            queues=self.queues,
            waiting=self.waiting,
            running=self.running,
            usage=self.usage,
            promises=self.promises,
        )
        decided = plan(snapshot, now, options)
        for admit in decided.admitted:
            each = self.waiting.get(admit.job_id)
            assert each is not None
            self.waiting.remove(admit.job_id)
            self.running[admit.job_id] = Running(each, admit.allocation, now)
        self.promises = {each.job_id: each.promise for each in decided.reserved}
        return decided


def started(decided: Plan) -> list[int]:
    return [each.job_id for each in decided.admitted]


def reserved(decided: Plan) -> dict[int, Reserve]:
    return {each.job_id: each for each in decided.reserved}


def test_a_promise_moves_later_for_a_queue_that_has_used_less_and_says_so() -> None:
    cluster = Cluster()
    cluster.used("a", 1e6)
    cluster.run(gang(1, "a", 8))
    cluster.submit(gang(2, "a", 8))
    assert reserved(cluster.turn())[2].promise.at == NOW + 100

    cluster.submit(gang(3, "b", 8))
    found = reserved(cluster.turn())

    assert found[3].promise.at == NOW + 100
    assert found[2].promise.at == NOW + 200
    assert found[2].moved_because == LESS_USED
    assert found[2].reasons == (Reason.CAPACITY, Reason.SHARE)


def test_a_promise_behind_one_that_moved_later_has_the_same_reason() -> None:
    cluster = Cluster()
    cluster.used("a", 1e6)
    cluster.run(gang(1, "a", 8))
    cluster.submit(gang(2, "a", 8), gang(3, "a", 8))
    cluster.turn()

    cluster.submit(gang(4, "b", 8))
    found = reserved(cluster.turn())

    assert [found[job_id].moved_because for job_id in (2, 3)] == [LESS_USED] * 2


@pytest.mark.parametrize("depth", [8, 40])
def test_saturated_queues_use_what_their_weights_say(depth: int) -> None:
    weights = {"a": 1.0, "b": 3.0}
    cluster = Cluster(*(Queue(name=name, weight=weight) for name, weight in weights.items()))
    options = PlannerOptions(reservations=10)
    got: Counter[str] = Counter()
    job_id = 0
    for turn in range(240):
        now = NOW + turn * 60.0
        for ended in [key for key, run in cluster.running.items() if run.started_at + 180 <= now]:
            del cluster.running[ended]
        for name in weights:
            for _ in range(depth - sum(1 for _ in cluster.waiting.in_order(name))):
                job_id += 1
                cluster.submit(gang(job_id, name))
        cluster.turn(now, options)
        held = Counter(run.gang.queue for run in cluster.running.values())
        for name in weights:
            past = cluster.usage[name].amounts["default"]["instances"] if name in cluster.usage else 0.0
            cluster.usage[name] = Usage(now, {"default": {"instances": past + held[name] * 60.0}})
            got[name] += held[name]

    assert got["b"] / got["a"] == pytest.approx(3.0, rel=0.02)


def test_what_borrowers_give_back_is_kept_for_the_owner_of_the_quota() -> None:
    quota = {"default": {"instances": Limit(nominal=4)}}
    cluster = Cluster(Queue(name="a", limits=quota), Queue(name="b", limits=quota))
    cluster.used("b", 1e6)
    cluster.run(*(gang(job_id, "a", seconds=None) for job_id in range(1, 9)))
    cluster.submit(*(gang(job_id, "a", seconds=None) for job_id in range(10, 20)), gang(20, "b", 4, None))
    first = cluster.turn()
    assert reserved(first)[20].reasons == (Reason.CAPACITY, Reason.LENT)

    for ended in (1, 2, 3):
        del cluster.running[ended]
        assert not started(cluster.turn())
    del cluster.running[4]

    assert started(cluster.turn()) == [20]


def test_what_no_owner_waits_for_is_lent_while_he_waits_for_the_rest() -> None:
    quota = {"default": {"instances": Limit(nominal=4)}}
    cluster = Cluster(Queue(name="a"), Queue(name="b", limits=quota), capacity=16)
    cluster.run(gang(1, "a", 14, None))
    cluster.submit(gang(2, "b", 4, None), *(gang(job_id, "a", 1, None) for job_id in range(10, 20)))
    assert not started(cluster.turn())

    del cluster.running[1]
    cluster.run(gang(3, "a", 13, None))
    assert not started(cluster.turn())
    del cluster.running[3]

    assert started(cluster.turn())[0] == 2


def test_a_job_that_is_put_off_again_and_again_is_passed_by_few_of_its_own_queue() -> None:
    """Otherwise, the small jobs use the whole share of the queue, and the large job never has its turn."""
    cluster = Cluster()
    cluster.used("a", 1e6)
    cluster.run(gang(1, "b", 6, 1000.0))
    cluster.submit(gang(2, "a", 8, 100.0))
    passed = 0
    for turn in range(60):
        now = NOW + turn * 10
        for key in [key for key, run in cluster.running.items() if key >= 1000 and run.started_at < now]:
            del cluster.running[key]
        # Each turn, queue b needs the whole cluster for longer, and a small job of queue a would fit.
        cluster.submit(gang(100 + turn, "b", 8, 100.0), gang(1000 + turn, "a", 1, 10.0))
        passed += sum(job_id >= 1000 for job_id in started(cluster.turn(now)))

    assert passed == 1 + 8, "one passed before the start was moved for the first time"
    assert cluster.promises[2].overtaken == 8


def test_a_job_that_loses_its_promise_is_passed_by_few_to_which_a_later_start_was_promised() -> None:
    """Otherwise, each time another queue takes its promise, another job of its own queue goes first."""
    cluster = Cluster()
    cluster.used("a", 1e6)
    cluster.submit(gang(2, "a", 8, 10.0))
    passed = 0
    for turn in range(60):
        cluster.running.clear()
        # Every other turn, the job of queue b is of unknown length: no start can be promised to job 2.
        cluster.submit(gang(100 + turn, "b", 1, None if turn % 2 else 10.0), gang(1000 + turn, "a", 1, None))
        passed += sum(job_id >= 1000 for job_id in started(cluster.turn(NOW + turn * 60)))

    assert passed == 8
    cluster.running.clear()
    assert started(cluster.turn(NOW + 3600))[0] == 2


def test_how_many_have_passed_a_job_is_known_after_passes_that_do_not_come_to_it() -> None:
    cluster = Cluster()
    cluster.run(gang(1, "b", 7, None))
    cluster.submit(gang(2, "a", 8, 10.0), gang(3, "a", 1, None))
    assert started(cluster.turn()) == [3]
    assert cluster.promises[2].overtaken == 1

    cluster.used("a", 1e6)
    cluster.submit(gang(4, "b", 8, None))
    cluster.turn(options=PlannerOptions(reservations=1))
    assert cluster.promises[2].overtaken == 1


def test_a_job_that_fits_nowhere_any_more_takes_no_reservation_of_others() -> None:
    cluster = Cluster()
    cluster.run(gang(1, "a", 7, None))
    cluster.submit(gang(2, "a", 9, 10.0), gang(3, "a", 8, 10.0), *(gang(i, "a", 1, None) for i in (4, 5, 6)))
    passed = 0
    for _ in range(20):
        passed += len(started(cluster.turn(options=PlannerOptions(reservations=1, overtake_limit=2))))
        for job_id in [each for each in cluster.running if each > 1]:
            del cluster.running[job_id]

    assert passed == 2


def test_what_is_guaranteed_to_a_parent_does_not_let_jobs_of_one_queue_pass_each_other() -> None:
    cluster = Cluster(
        Queue(name="top", limits={"default": {"instances": Limit(nominal=3)}}),
        *(Queue(name=name, parent="top") for name in ("a", "b")),
    )
    cluster.run(gang(1, "b", 2, None))
    cluster.submit(gang(2, "a", 8, 10.0))
    passed = 0
    for job_id in range(10, 40):
        cluster.submit(gang(job_id, "a", 1, None))
        passed += len(started(cluster.turn()))
        cluster.running = {1: cluster.running[1]}

    assert passed == 8


@pytest.mark.parametrize("seconds", [[100.0], [100.0, None]])
def test_promises_to_later_jobs_count_as_overtaking_a_job_to_which_none_can_be_promised(
    seconds: list[float | None],
) -> None:
    """Otherwise, jobs that come while all machines are taken pass it for ever, each with a promise."""
    cluster = Cluster()
    cluster.run(gang(1, "a", 1, None), *(gang(job_id, "a", 1, 100.0) for job_id in range(2, 9)))
    cluster.submit(gang(20, "a", 8, 10.0))
    passed = 0
    for turn in range(60):
        now = NOW + turn * 20
        for ended in [key for key, run in cluster.running.items() if key > 1 and run.started_at + 100 <= now]:
            del cluster.running[ended]
        for job_id in (1000 + 2 * turn, 1001 + 2 * turn):
            cluster.submit(gang(job_id, "a", 1, seconds[job_id % len(seconds)]))
        passed += len(started(cluster.turn(now)))

    assert passed == 8
    del cluster.running[1]
    assert started(cluster.turn(now)) == [20]


@pytest.mark.parametrize("queue", ["a", "b"])
def test_an_elastic_job_takes_no_more_than_the_fewest_trainers_from_what_was_promised(queue: str) -> None:
    cluster = Cluster()
    cluster.run(gang(1, "c", 8, 10.0))
    cluster.submit(replace(gang(2, "a", 8, 1000.0), least=1), gang(3, queue, 4, 100.0))
    assert {key: each.promise.at for key, each in reserved(cluster.turn()).items()} == {
        2: NOW + 10,
        3: NOW + 10,
    }
    del cluster.running[1]

    decided = cluster.turn(NOW + 10)

    assert [(each.job_id, each.allocation.trainers) for each in decided.admitted] == [(2, 4), (3, 0)]


def test_an_elastic_job_leaves_the_quota_of_what_was_promised() -> None:
    cluster = Cluster(
        Queue(name="a"),
        Queue(name="c", limits={"default": {"instances": Limit(nominal=3, lend=1)}}),
        Queue(name="d", limits={"default": {"instances": Limit(nominal=2)}}),
        capacity=5,
    )
    cluster.run(gang(1, "a", 1, None), gang(2, "d", 2, 5.0))
    cluster.submit(replace(gang(3, "c", 2, None), least=1), gang(4, "c", 1, None))
    cluster.promises = {each: Promise(NOW + 5, "default") for each in (3, 4)}

    decided = cluster.turn()

    assert [(each.job_id, each.allocation.trainers) for each in decided.admitted] == [(3, 1), (4, 0)]


def test_a_promise_to_a_job_holds_while_jobs_before_it_have_none() -> None:
    cluster = Cluster()
    cluster.used("a", 1e6)
    cluster.run(gang(1, "b", 1, None), *(gang(job_id, "b", 1, 100.0) for job_id in range(2, 9)))
    cluster.submit(gang(20, "a", 1, 10.0))
    assert reserved(cluster.turn())[20].promise.at == NOW + 100

    cluster.promises[30] = Promise(math.inf, "", 8)
    cluster.submit(gang(30, "b", 8, 10.0))
    assert reserved(cluster.turn())[20].promise.at == NOW + 100
    del cluster.running[2]

    assert started(cluster.turn(NOW + 50)) == [20]


def test_jobs_do_not_pass_the_first_of_their_queue_if_that_one_has_no_reservation() -> None:
    cluster = Cluster()
    cluster.used("b", 1e6)
    cluster.run(gang(1, "a", 6, 1000.0))
    cluster.submit(gang(2, "a", 8), gang(3, "b", 8), gang(4, "b", 1, 10.0), gang(5, "a", 1, 10.0))

    decided = cluster.turn(NOW, PlannerOptions(reservations=1))

    assert list(reserved(decided)) == [2]
    assert started(decided) == [5]


def test_the_overtaken_of_each_queue_are_counted_while_another_one_is_the_first() -> None:
    cluster = Cluster()
    cluster.used("a", 1e6)
    cluster.run(gang(1, "c", 4, None))
    cluster.submit(gang(2, "b", 8), gang(3, "a", 8), gang(4, "a", 1, None), gang(5, "b", 1, None))

    decided = cluster.turn()

    assert sorted(started(decided)) == [4, 5]
    assert {key: each.promise.overtaken for key, each in reserved(decided).items()} == {2: 2, 3: 1}
    assert all(each.promise.at == math.inf for each in decided.reserved)


def test_a_job_that_no_longer_fits_says_so_also_if_its_queue_runs_as_many_as_it_may() -> None:
    cluster = Cluster(Queue(name="a", max_running=1))
    cluster.run(gang(1, "a"))
    cluster.submit(gang(2, "a", 9), gang(3, "a"))

    found = reserved(cluster.turn())

    assert found[2].reasons[0] is Reason.LOST_CAPACITY
    assert found[3].reasons[0] is Reason.MAX_RUNNING


def overtakers(first: int, last: int) -> list[Gang]:
    return [gang(job_id, seconds=None) for job_id in range(first, last)]


@pytest.mark.parametrize("limits", [{}, {"small": {"instances": Limit(nominal=1, borrow=0)}}])
def test_a_job_keeps_no_machines_idle_on_which_it_can_never_run(
    limits: dict[str, dict[str, Limit]],
) -> None:
    cluster = Cluster(Queue(name="a", limits=limits))
    cluster.flavors = (
        Flavor(name="small", capacity={"instances": 2}),
        Flavor(name="big", capacity={"instances": 4}),
    )
    large = gang(1, count=4, seconds=None)
    cluster.running[large.job_id] = Running(large, Allocation(flavor="big"), NOW)
    cluster.submit(gang(2, count=4, seconds=None), *overtakers(3, 30))
    passed = 0
    for turn in range(12):
        decided = cluster.turn(NOW + turn)
        passed += len(decided.admitted)
        for admit in decided.admitted:
            del cluster.running[admit.job_id]
    assert passed > 8, "more than the limit"
    assert reserved(decided)[2].reasons == (Reason.CAPACITY,)


def test_a_queue_without_quota_never_waits_for_its_quota() -> None:
    keeps = Queue(name="b", limits={"default": {"instances": Limit(nominal=4, lend=0)}})
    cluster = Cluster(Queue(name="a"), keeps)
    cluster.run(gang(1, count=4, seconds=None))
    cluster.submit(gang(2, count=2, seconds=None))
    assert reserved(cluster.turn())[2].reasons == (Reason.KEPT,)
    cluster.run(gang(3, "b", count=4, seconds=None))
    assert reserved(cluster.turn())[2].reasons == (Reason.CAPACITY,)
