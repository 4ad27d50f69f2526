"""First in, first out: for any queue and any capacity."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from job_tracker.domain.diagnosis import Category
from job_tracker.domain.job import JobState
from job_tracker.scheduling.fifo import Fifo
from job_tracker.scheduling.policy import Admit, Decision, Reason, Refuse, Snapshot, Wait
from tests.support.jobs import NOON, job

SIZES = st.lists(st.integers(1, 12), max_size=12)
CAPACITIES = st.integers(0, 16)


def snapshot(sizes: Sequence[int], capacity: int, in_use: int = 0, *, has_room: bool = True) -> Snapshot:
    """Return a snapshot with queued jobs of these sizes."""
    queued = [
        job(job_id=number, instances=size, state=JobState.QUEUED, attempt=0)
        for number, size in enumerate(sizes, 1)
    ]
    return Snapshot(capacity=capacity, in_use=in_use, queued=queued, has_room=has_room)


def plan(of: Snapshot) -> Sequence[Decision]:
    return Fifo().plan(of, NOON)


@given(SIZES, CAPACITIES, CAPACITIES, st.booleans())
def test_each_job_of_the_snapshot_gets_one_decision_in_its_order(
    sizes: list[int], capacity: int, in_use: int, has_room: bool
) -> None:
    seen = snapshot(sizes, capacity, in_use, has_room=has_room)
    assert [decision.job for decision in plan(seen)] == seen.queued
    assert plan(seen) == plan(seen)


@given(SIZES, CAPACITIES, CAPACITIES, st.booleans())
def test_admitted_jobs_fit_into_the_capacity(
    sizes: list[int], capacity: int, in_use: int, has_room: bool
) -> None:
    """Also if more than the capacity is in use, since it was lowered."""
    decisions = plan(snapshot(sizes, capacity, in_use, has_room=has_room))
    admitted = [each.job.spec.instances for each in decisions if isinstance(each, Admit)]
    assert not admitted or sum(admitted) + in_use <= capacity
    assert has_room or len(admitted) <= 1


@given(SIZES, CAPACITIES, CAPACITIES, st.booleans())
def test_no_job_overtakes_one_that_waits(
    sizes: list[int], capacity: int, in_use: int, has_room: bool
) -> None:
    decisions = plan(snapshot(sizes, capacity, in_use, has_room=has_room))
    waiting = [isinstance(each, Wait) for each in decisions]
    assert waiting == sorted(waiting), "once one waits, so do all behind it"


@given(SIZES, CAPACITIES, CAPACITIES)
def test_the_first_waiting_job_fits_into_the_capacity_but_not_now(
    sizes: list[int], capacity: int, in_use: int
) -> None:
    decisions = plan(snapshot(sizes, capacity, in_use))
    admitted = sum(each.job.spec.instances for each in decisions if isinstance(each, Admit))
    for each in decisions:
        needed = each.job.spec.instances
        if isinstance(each, Refuse):
            assert needed > capacity
            assert each.diagnosis.category is Category.EXCEEDS_CAPACITY
        elif isinstance(each, Admit):
            assert needed <= capacity
        elif each.reason is Reason.CAPACITY:
            assert capacity - in_use - admitted < needed <= capacity


@given(SIZES, CAPACITIES)
def test_every_job_that_fits_into_the_capacity_starts_in_the_end(sizes: list[int], capacity: int) -> None:
    left, rounds = list(sizes), 0
    while left:
        decisions = plan(snapshot(left, capacity))
        left = [each.job.spec.instances for each in decisions if isinstance(each, Wait)]
        rounds += 1
        assert rounds <= len(sizes), "each plan for an empty machine serves at least its head"


def test_a_waiting_job_has_a_reason() -> None:
    def reasons(of: Snapshot) -> list[Reason | None]:
        return [each.reason if isinstance(each, Wait) else None for each in plan(of)]

    assert reasons(snapshot([2, 3, 1], capacity=4)) == [None, Reason.CAPACITY, Reason.ORDER]
    assert reasons(snapshot([1, 1, 1], capacity=4, has_room=False)) == [None, Reason.ROOM, Reason.ROOM]
    assert reasons(snapshot([9, 4, 1], capacity=4, has_room=False)) == [None, None, Reason.ROOM]
