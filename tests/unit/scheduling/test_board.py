"""The board of the leader: queues that are gone, the use by queues, claims, and a clock that is set."""

from dataclasses import replace
from datetime import timedelta

import pytest

from job_tracker.domain.allocation import Allocation
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.job import Ending, Job, JobState, Preemption, PreemptionReason, new_job
from job_tracker.scheduling.board import Board, Pool
from job_tracker.scheduling.model import Flavor, PreemptionRules, Promise, Queue, Snapshot
from job_tracker.scheduling.planner import plan
from job_tracker.scheduling.shares import Shares
from tests.support.jobs import NOON, spec

HALF_LIFE = 100.0
NOW = NOON.timestamp()
FAILURE = Diagnosis(category=Category.NODE_LOST, summary="Lost.", resolution="Wait.", retryable=True)


class Declared:
    """A board, and the queues that a test declares."""

    def __init__(self, *queues: str) -> None:
        self.flavors: tuple[Flavor, ...] = (Flavor(name="default", capacity={"instances": 8}),)
        self.queues = {name: Queue(name=name) for name in queues}
        self.board = Board(self._pool, HALF_LIFE)

    def _pool(self) -> Pool:
        return self.flavors, self.queues

    def snapshot(self) -> Snapshot:
        return self.board.snapshot(is_open=True)

    def used(self, queue: str = "default", now: float = NOW) -> float:
        self.board.advance(now)
        return self.board.usage[queue].amounts["default"]["instances"]


def waiting(job_id: int, queue: str = "default", instances: int = 1) -> Job:
    return new_job(job_id, spec(queue=queue, instances=instances), NOON)


def running(job_id: int, after: float = 0, queue: str = "default") -> Job:
    return waiting(job_id, queue).admitted(NOON + timedelta(seconds=after))


@pytest.fixture
def declared() -> Declared:
    return Declared("default")


def test_queues_that_are_gone_are_there_as_long_as_they_have_jobs(declared: Declared) -> None:
    assert declared.snapshot().queues is declared.queues
    declared.board.read(waiting(1, "gone"), NOW)
    declared.board.read(running(2, queue="over"), NOW)
    before = declared.snapshot().queues
    assert before == {name: Queue(name=name) for name in ("default", "gone", "over")}
    declared.board.read(waiting(3, "gone"), NOW)
    assert declared.snapshot().queues is before, "the planner keeps what it has worked out for it"
    declared.board.remove(1, NOW)
    declared.board.remove(2, NOW)
    declared.board.remove(3, NOW)
    assert declared.snapshot().queues is declared.queues


def test_a_queue_that_is_declared_again_has_its_limits_again(declared: Declared) -> None:
    declared.board.read(waiting(1, "back"), NOW)
    assert declared.snapshot().queues["back"].weight == 1
    declared.queues = {**declared.queues, "back": Queue(name="back", weight=3, max_running=1)}
    assert declared.snapshot().queues is declared.queues


def test_what_running_jobs_have_used_counts_from_their_starts(declared: Declared) -> None:
    one = Declared("default")
    one.board.read(running(1), NOW)
    one.board.read(running(2, after=5), NOW + 5)
    for job in (running(1), running(2, after=5)):
        declared.board.read(job, NOW + 10)
    used = one.used(now=NOW + 10)
    assert declared.used(now=NOW + 10) == pytest.approx(used)
    declared.board.read(running(3, after=5), NOW + 10)
    assert declared.used(now=NOW + 10) == pytest.approx(used), "what has passed counts once"


def test_a_start_in_the_future_counts_as_one_now(declared: Declared) -> None:
    declared.board.read(running(1, after=3600), NOW)
    assert declared.snapshot().running[1].started_at == NOW
    assert declared.used(now=NOW + 1) == pytest.approx(1, rel=0.01)


def test_all_times_move_with_a_clock_that_is_set(declared: Declared) -> None:
    declared.board.read(running(1), NOW)
    declared.board.promises[2] = Promise(NOW + 60, "default", overtaken=3)
    declared.board.advance(NOW + 1)
    before = declared.board.usage["default"]
    declared.board.shift(-3600)
    assert declared.board.running[1].started_at == NOW - 3600
    assert declared.board.promises == {2: Promise(NOW - 3540, "default", overtaken=3)}
    assert declared.board.usage["default"] == replace(before, at=NOW - 3599)


def test_what_runs_is_counted_before_usage_is_brought_up_to_date(declared: Declared) -> None:
    """So a pass does not have to write the usage of each queue anew."""
    declared.board.read(running(1), NOW)

    def share(now: float) -> float:
        state = declared.snapshot()
        held = declared.board.running.held()
        return Shares(state.flavors, state.queues, state.usage, now, HALF_LIFE, held).of("default")

    before = share(NOW + 50)
    declared.board.advance(NOW + 50)

    assert before > 0
    assert share(NOW + 50) == pytest.approx(before)
    assert declared.board.usage["default"].at == NOW + 50


def test_usage_stays_when_the_board_is_read_again(declared: Declared) -> None:
    declared.board.read(running(1), NOW)
    declared.board.clear(NOW + 50)

    assert declared.used() > 0
    assert not declared.board.running


def test_a_job_of_an_earlier_version_takes_room_of_the_first_flavor(declared: Declared) -> None:
    declared.flavors = tuple(Flavor(name=name, capacity={"instances": 8}) for name in ("a100", "spot"))
    declared.board.read(running(1), NOW)
    declared.board.read(waiting(2).admitted(NOON, Allocation(flavor="spot")), NOW)
    found = declared.snapshot().running
    assert [found[job_id].allocation.flavor for job_id in (1, 2)] == ["a100", "spot"]


def test_a_replica_that_sees_only_the_next_attempt_has_its_allocation(declared: Declared) -> None:
    declared.board.read(running(1), NOW)
    again = running(1).failed(FAILURE, NOON).ended(Ending(JobState.BACKOFF, NOON), NOON).queued_again(NOON)
    later = NOON + timedelta(seconds=30)

    declared.board.read(again.admitted(later, Allocation(flavor="spot")), NOW + 30)

    run = declared.snapshot().running[1]
    assert (run.allocation.flavor, run.started_at) == ("spot", NOW + 30)
    assert set(declared.board.running.held()["default"]) == {"spot"}


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.SUCCEEDED])
def test_what_a_victim_leaves_that_ends_during_its_notice_is_for_the_job_for_which_it_was_stopped(
    declared: Declared, state: JobState
) -> None:
    """Queue b has used nothing, so its job would go first, and another victim would be stopped."""
    rules = PreemptionRules(by_priority=True)
    declared.queues = {"a": Queue(name="a", preemption=rules), "b": Queue(name="b")}
    victims = [waiting(job_id, "a", 4).admitted(NOON).running(NOON) for job_id in (1, 2)]
    urgent = new_job(3, spec(queue="a", instances=4, priority=100), NOON)
    for job in (*victims, urgent, waiting(4, "b", 4)):
        declared.board.read(job, NOW)
    (stop,) = plan(declared.snapshot(), NOW).preempted
    leaving = victims[stop.job_id - 1].preempted(Preemption(by_job=3, why=PreemptionReason.PRIORITY), NOON)
    declared.board.read(leaving, NOW)
    ending = leaving.decided(Ending(state, NOON)).ending
    assert ending is not None
    declared.board.read(replace(leaving, ending=ending), NOW)
    assert plan(declared.snapshot(), NOW + 1).preempted == ()
    declared.board.read(leaving.ended(ending, NOON), NOW)
    decided = plan(declared.snapshot(), NOW + 2)
    assert ([each.job_id for each in decided.admitted], decided.preempted) == ([3], ())
