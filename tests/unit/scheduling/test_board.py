"""The board: jobs as they are stored, and what queues have used."""

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from job_tracker.domain.allocation import Allocation
from job_tracker.domain.job import Job, JobState, new_job
from job_tracker.scheduling.board import Board
from job_tracker.scheduling.model import Flavor, Queue
from job_tracker.scheduling.shares import Shares
from tests.support.jobs import NOON, spec

START = NOON.timestamp()
HALF_LIFE = 100.0
FLAVORS = (Flavor(name="default", capacity={"instances": 8}),)
QUEUES = {"default": Queue(name="default")}


def board() -> Board:
    return Board(lambda: (FLAVORS, QUEUES), HALF_LIFE)


def queued(job_id: int, instances: int = 2) -> Job:
    return new_job(job_id, spec(instances=instances), NOON)


def admitted(job_id: int, instances: int = 2) -> Job:
    return queued(job_id, instances).admitted(NOON, Allocation())


def used(on: Board) -> float:
    return on.usage["default"].amounts["default"]["instances"]


def test_a_job_waits_until_it_is_admitted_and_runs_until_it_is_removed() -> None:
    mine = board()
    mine.read(queued(1), START)
    assert mine.knows(1, JobState.QUEUED)
    assert [*mine.waiting.in_order("default")][0].job_id == 1

    mine.read(admitted(1), START)
    assert not len(mine.waiting)
    assert mine.knows(1, JobState.LAUNCHING)

    mine.remove(1, START)
    assert mine.knows(1, JobState.SUCCEEDED)
    assert not mine.running


def test_usage_grows_while_jobs_run_and_decays_all_the_time() -> None:
    mine = board()
    mine.read(admitted(1), START)
    mine.remove(1, START + HALF_LIFE)
    after = used(mine)
    assert after == pytest.approx(2 * HALF_LIFE * 0.5 / math.log(2))

    mine.read(admitted(2), START + 2 * HALF_LIFE)
    assert used(mine) == pytest.approx(after / 2)


def test_what_runs_is_counted_before_usage_is_brought_up_to_date() -> None:
    """So a pass does not have to write the usage of each queue anew."""
    mine = board()
    mine.read(admitted(1), START)

    def share(now: float) -> float:
        state = mine.snapshot(now, is_open=True)
        held = mine.running.held()
        return Shares(state.flavors, state.queues, state.usage, now, HALF_LIFE, held).of("default")

    before = share(START + 50)
    mine.advance(START + 50)

    assert before == pytest.approx(share(START + 50))
    assert before > 0
    assert mine.usage["default"].at == START + 50


def test_usage_stays_when_the_board_is_read_again() -> None:
    mine = board()
    mine.read(admitted(1), START)
    mine.clear(START + 50)

    assert used(mine) > 0
    assert not mine.running


def test_a_job_of_a_queue_that_is_gone_waits_at_the_top() -> None:
    mine = board()
    mine.read(new_job(1, replace(spec(), queue="gone"), NOON), START)

    assert mine.snapshot(START, is_open=True).queues["gone"] == Queue(name="gone")


def test_the_tree_with_queues_that_are_gone_is_the_same_object_from_pass_to_pass() -> None:
    """What depends on the tree only is then worked out once."""
    mine = board()
    mine.read(new_job(1, replace(spec(), queue="gone"), NOON), START)
    first = mine.snapshot(START, is_open=True).queues

    assert mine.snapshot(START, is_open=True).queues is first


def test_a_duration_that_the_caller_gives_is_expected() -> None:
    mine = board()
    mine.read(new_job(1, replace(spec(), expected=timedelta(minutes=5)), NOON), START)
    gang = mine.waiting.get(1)

    assert gang is not None
    assert gang.expected is not None
    assert gang.expected.median == 300
