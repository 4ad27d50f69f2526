"""The leader's knowledge of the processes of running attempts, even if they report nonsense."""

import math
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import Job, JobState
from job_tracker.domain.pace import Activity, RankPace
from job_tracker.domain.policies import Deadlines
from job_tracker.domain.progress import Progress
from job_tracker.reports.ranks import MOST_OF_STACKS, Orders, RankBoard, RankReport, Watched, rank_report
from tests.support.jobs import NOON, job_of, spec


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def sent(**values: Any) -> Any:
    """Return a message of a process."""
    usual = {"rank": 0, "step": 3, "longest_step": 2.0, "step_seconds": 1.0, "waiting_seconds": 0.5}
    others = {"waiting": False, "phase": "", "place": 0, "stacks": "", "collectives": ()}
    return SimpleNamespace(**{**usual, **others, "moved_ago": 0.0, "still_for": 0.0, **values})


def running(instances: int = 2, **deadlines: Any) -> Job:
    return job_of(spec(instances=instances, deadlines=Deadlines(**deadlines)), state=JobState.RUNNING)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> RankBoard:
    made = RankBoard(clock, lambda: NOON)
    made.open()
    made.follow(running())
    return made


def watched(board: RankBoard) -> Watched:
    [(_, one)] = board.watched()
    return one


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 1e300])
def test_impossible_times_count_as_unknown(seconds: float) -> None:
    report = rank_report(
        sent(longest_step=seconds, step_seconds=seconds, waiting_seconds=seconds, moved_ago=seconds),
        has_step=True,
    )
    assert (report.longest_step, report.step_seconds, report.waiting_seconds) == (0, 0, 0)
    assert report.moved_ago == 0
    assert rank_report(sent(still_for=seconds), has_step=True, has_still_for=True).still_for == 0
    assert rank_report(sent(still_for=seconds), has_step=True).still_for is None


def test_other_values_of_a_message_are_made_safe() -> None:
    report = rank_report(sent(step=-1, phase="\x1b[31m", stacks="x" * 10**6), has_step=True)
    assert (report.step, report.activity) == (None, Activity.TRAINING)
    assert len(report.stacks) == MOST_OF_STACKS
    assert rank_report(sent(phase="saving"), has_step=False).step is None
    assert rank_report(sent(phase="saving"), has_step=True).activity is Activity.SAVING


@pytest.mark.parametrize("process", [-1, 2, 2**31 - 1])
def test_a_process_that_the_group_does_not_have_leaves_no_trace(board: RankBoard, process: int) -> None:
    board.take((1, 1), RankReport(process=process, step=1))
    assert watched(board).signs == {}


def test_a_step_is_dated_when_its_report_arrives(board: RankBoard, clock: Clock) -> None:
    board.take((1, 1), RankReport(process=1, step=5, place=1))
    clock.now += 10
    board.take((1, 1), RankReport(process=1, step=5, place=2))
    signs = watched(board).signs[1]
    assert (signs.moved, signs.active, signs.heard) == (100, 110, 110)
    clock.now += 10
    board.take((1, 1), RankReport(process=1, step=4, place=2))  # another step, so the process does something
    assert (signs.moved, signs.active, signs.heard) == (120, 120, 120)


def test_a_process_that_looks_where_it_stands_is_active_when_it_says_so(
    board: RankBoard, clock: Clock
) -> None:
    board.take((1, 1), RankReport(process=1, step=5, place=1, still_for=0))
    clock.now += 15
    board.take((1, 1), RankReport(process=1, step=9, place=2, moved_ago=14, still_for=14))
    signs = watched(board).signs[1]
    assert (signs.moved, signs.active) == (101, 101)  # the process has hung since that step
    clock.now += 15
    board.take((1, 1), RankReport(process=1, step=9, place=2, moved_ago=29, still_for=1))
    assert (signs.moved, signs.active) == (101, 129)  # it moves, but was just seen at this place
    clock.now += 1
    board.take((1, 1), RankReport(process=1, step=9, place=2, moved_ago=30, still_for=1e9))
    assert signs.active == 129


@pytest.mark.parametrize("step", [-1, -(2**63), 10**15 + 1, 2**63 - 1])
def test_an_impossible_step_counts_as_unknown(step: int) -> None:
    assert rank_report(sent(step=step), has_step=True).step is None


def test_a_process_that_lies_about_its_step_harms_only_its_own_attempt(
    board: RankBoard, clock: Clock
) -> None:
    board.follow(job_of(spec(instances=2), state=JobState.RUNNING, job_id=2))
    board.take((2, 1), RankReport(process=0, step=3, longest_step=0.5))
    for step in (10**15, 0, 10**15, None):  # forwards, backwards, and nothing at all
        clock.now += 1
        board.take((1, 1), RankReport(process=0, step=step, longest_step=1e9))
    attempts = dict(board.watched())
    assert attempts[1, 1].signs[0].last.step is None
    assert (attempts[2, 1].signs[0].last.step, attempts[2, 1].signs[0].moved) == (3, 100)


def test_only_the_leader_watches(board: RankBoard) -> None:
    board.close()
    assert board.take((1, 1), RankReport(process=0)) == Orders(1.0, reconnect=True)
    board.open()
    assert board.take((1, 1), RankReport(process=0)) == Orders(1.0)  # the tracker will look at the job
    assert list(board.watched()) == []


def test_each_process_is_asked_for_its_stacks_until_it_has_sent_them(board: RankBoard, clock: Clock) -> None:
    assert not board.take((1, 1), RankReport(process=0)).wants_stacks
    watched(board).asked = clock.now
    assert board.take((1, 1), RankReport(process=0)).wants_stacks
    assert not board.take((1, 1), RankReport(process=0, stacks="Thread\x1b[2J\n")).wants_stacks
    assert watched(board).signs[0].stacks == "Thread[2J\n"
    assert not board.take((1, 1), RankReport(process=0, stacks="other")).wants_stacks
    assert watched(board).signs[0].stacks == "Thread[2J\n"
    assert board.take((1, 1), RankReport(process=1)).wants_stacks


def test_reports_come_more_often_when_nothing_moves_and_never_too_often_in_all(clock: Clock) -> None:
    board = RankBoard(clock, lambda: NOON)
    board.open()
    board.follow(running(instances=4000))
    assert board.take((1, 1), RankReport(process=0)).pause == 15
    watched(board).restless = True
    assert board.take((1, 1), RankReport(process=0)).pause == 1
    for process in range(4000):
        orders = board.take((1, 1), RankReport(process=process))
    assert orders.pause == 8  # 500 a second


def test_the_deadline_is_that_of_the_job(board: RankBoard) -> None:
    assert watched(board).deadline is None
    board.follow(running(progress=NOON - NOON.replace(hour=11)))
    assert watched(board).deadline == 3600
    board.drop((1, 1))
    assert (list(board.watched()), board.size_of((1, 1))) == ([], 1)


def test_after_all_processes_were_suspended_they_get_their_whole_time_again(
    board: RankBoard, clock: Clock
) -> None:
    def take(process: int, after: float) -> float:
        clock.now += after
        board.take((1, 1), RankReport(process=process, step=5, place=1))
        return clock.now - watched(board).moved

    assert [take(0, 0), take(1, 1), take(0, 14), take(1, 1)] == [0, 1, 15, 16]
    assert take(0, 600) == 0  # a suspended machine, or a service that was out of reach
    assert take(1, 2) == 2
    assert [take(0, 12), take(0, 15), take(0, 15)] == [14, 29, 44]  # process 1 alone is frozen
    watched(board).restless = True
    assert take(0, 1) == 45  # this one reports every second now, and is frozen, too
    assert take(1, 10) == 55  # this one was not late
    board.follow(running(progress=timedelta(seconds=3)))
    assert take(0, 600) == 655  # the job's own deadline is exact


def test_a_restarted_rank_is_expected_to_begin_anew(board: RankBoard, clock: Clock) -> None:
    for process in (0, 1):
        board.take((1, 1), RankReport(process=process, step=5, longest_step=0.5))
    clock.now += 8
    failed = Diagnosis(category=Category.CRASHED, summary="It crashed.", resolution="")
    ranks = (RankStatus(0, Phase.RUNNING), RankStatus(1, Phase.FAILED))
    again = replace(running(), ranks=ranks).restarting(1, failed, NOON)
    board.follow(again)
    assert (set(watched(board).signs), watched(board).anew, watched(board).moved) == ({0}, {1}, clock.now)
    clock.now += 10
    board.take((1, 1), RankReport(process=1))
    board.take((1, 1), RankReport(process=0, step=6, longest_step=0.5))
    board.follow(again)
    assert (watched(board).anew, watched(board).moved) == ({1}, clock.now - 10)
    board.take((1, 1), RankReport(process=1, step=7, longest_step=0.5))
    assert not watched(board).anew
    board.open()  # another leader, which does not know whether the rank is still loading
    board.follow(again)
    assert watched(board).anew == {1}


def test_a_later_leader_knows_which_processes_make_no_more_steps(board: RankBoard) -> None:
    paces = (RankPace(0, 9), RankPace(1, 9, Activity.DONE))
    board.open()
    board.follow(replace(running(), progress=Progress(ranks=paces)))
    assert (watched(board).expected, watched(board).over) == ({0: 9, 1: 9}, {1})


def lossy(job: Job, *phases: Phase) -> Job:
    """Return a job that may lose a rank, with its ranks in these phases."""
    group = replace(job.spec.group, max_lost=1)
    ranks = tuple(RankStatus(rank, phase) for rank, phase in enumerate(phases))
    return replace(job, spec=replace(job.spec, group=group), ranks=ranks)


def test_a_lost_rank_is_forgotten_and_its_late_reports_are_ignored(board: RankBoard, clock: Clock) -> None:
    job = running(3)
    board.drop((job.id, job.attempt))
    board.follow(lossy(job, *[Phase.RUNNING] * 3))
    for process in range(3):
        board.take((job.id, job.attempt), RankReport(process=process, step=5, activity=Activity.DONE))
    clock.now += 10
    board.follow(lossy(job, Phase.RUNNING, Phase.FAILED, Phase.RUNNING))
    board.take((job.id, job.attempt), RankReport(process=1, step=6))
    found = watched(board)
    assert (set(found.signs), found.processes, found.moved) == ({0, 2}, {0, 2}, clock.now)


def test_a_new_leader_expects_nothing_of_a_rank_that_was_lost_before(board: RankBoard) -> None:
    paces = tuple(RankPace(process=n, step=5, activity=Activity.DONE, heard_at=NOON) for n in range(3))
    job = replace(running(3), progress=Progress(ranks=paces))
    board.drop((job.id, job.attempt))
    board.follow(lossy(job, Phase.RUNNING, Phase.FAILED, Phase.RUNNING))
    assert (set(watched(board).expected), set(watched(board).over)) == ({0, 2}, {0, 2})
