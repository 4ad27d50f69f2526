"""The watch of the leader: it asks for stacks before it calls an attempt stalled."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import JobState
from job_tracker.domain.pace import Activity
from job_tracker.domain.policies import Deadlines
from job_tracker.reports import ReportBuffer
from job_tracker.reports.ranks import Outside, RankBoard, RankReport
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.watching import ProgressWatch, paces_of
from tests.support.jobs import NOON, job_of, spec

ATTEMPT = (1, 1)
JOB = job_of(spec(instances=2, deadlines=Deadlines(progress=timedelta(seconds=3))), state=JobState.RUNNING)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stalled() -> list[int]:
    return []


@pytest.fixture
async def watch(tmp_path: Path, clock: Clock, stalled: list[int]) -> Any:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    buffer = ReportBuffer(store, lambda: NOON, RankBoard(clock, lambda: NOON))
    made = ProgressWatch(buffer, stalled.append, lambda: NOON)
    buffer.ranks.open()
    made.follow(JOB)
    yield made
    await store.close()


def report(watch: ProgressWatch, processes: Sequence[int], **values: Any) -> bool:
    """Report as these processes. Return whether one was asked for its stacks."""
    board = watch._board
    made = [
        board.take(ATTEMPT, RankReport(process=each, **{"step": 5, "longest_step": 0.1, **values}))
        for each in processes
    ]
    return any(orders.wants_stacks for orders in made)


async def test_stacks_of_a_process_that_had_fallen_silent_are_not_waited_for(
    watch: ProgressWatch, clock: Clock, stalled: list[int]
) -> None:
    report(watch, [0, 1])
    for _ in range(4):
        clock.now += 1
        report(watch, [0], waiting=True)
    watch.look()
    report(watch, [0], waiting=True, stacks="Thread MainThread:\n  a.py:1 in wait\n")
    watch.look()
    assert stalled == [1]
    why = watch.stall_of(JOB.group)
    assert why is not None
    assert (why.rank, "has given no sign" in why.summary) == (1, True)


async def test_a_stall_is_called_when_all_have_sent_their_stacks(
    watch: ProgressWatch, clock: Clock, stalled: list[int]
) -> None:
    report(watch, [0, 1])
    clock.now += 4
    watch.look()
    assert stalled == []
    assert report(watch, [0, 1], waiting=True)
    assert not report(watch, [0], waiting=True, stacks="Thread MainThread:\n  a.py:1 in wait\n")
    watch.look()
    assert stalled == []
    report(watch, [1], stacks="Thread MainThread:\n  a.py:2 in read\n")
    watch.look()
    assert stalled == [1]
    why = watch.stall_of(JOB.group)
    assert why is not None
    assert why.rank == 1


async def test_the_deadline_counts_from_the_last_step_and_not_from_its_report(
    watch: ProgressWatch, clock: Clock
) -> None:
    report(watch, [0, 1], step=4)
    clock.now += 1.5
    report(watch, [0, 1], moved_ago=1.0)
    clock.now += 1.9
    watch.look()
    assert not report(watch, [0, 1], moved_ago=2.9)
    assert watch._until_next_look() == pytest.approx(0.1)
    clock.now += 0.11
    watch.look()
    assert report(watch, [0, 1], moved_ago=3.01)


async def test_a_process_that_lies_about_its_last_step_moved_after_its_report_before(
    watch: ProgressWatch, clock: Clock
) -> None:
    report(watch, [0, 1], step=4)
    clock.now += 1.5
    report(watch, [0, 1], moved_ago=1e9)
    clock.now += 1.4
    watch.look()
    assert not report(watch, [0], moved_ago=1e9)


async def test_a_process_that_has_just_made_a_step_is_not_asked(watch: ProgressWatch, clock: Clock) -> None:
    report(watch, [0, 1])
    clock.now += 3.1
    watch.look()
    assert not report(watch, [0], step=6, moved_ago=0.2)


async def test_reports_come_right_after_the_deadline(watch: ProgressWatch, clock: Clock) -> None:
    report(watch, [0, 1])
    clock.now += 2.5
    watch.look()
    orders = watch._board.take(ATTEMPT, RankReport(process=0, step=5))
    assert orders.pause == pytest.approx(0.55)


async def test_a_process_that_does_not_answer_is_waited_for_only_briefly(
    watch: ProgressWatch, clock: Clock, stalled: list[int]
) -> None:
    report(watch, [0, 1])
    clock.now += 4
    watch.look()
    for _ in range(5):
        clock.now += 1
        report(watch, [0], stacks="Thread MainThread:\n  a.py:1 in wait\n")
        watch.look()
    assert stalled == [1]
    why = watch.stall_of(JOB.group)
    assert why is not None
    assert why.summary.startswith("Rank 1 has given no sign since it reported step 5")


async def test_progress_ends_a_suspicion_and_a_stall(watch: ProgressWatch, clock: Clock) -> None:
    report(watch, [0, 1])
    clock.now += 4
    watch.look()
    report(watch, [0, 1], stacks="Thread MainThread:\n")
    watch.look()
    assert watch.stall_of(JOB.group) is not None
    report(watch, [1], step=6)
    watch.look()
    assert watch.stall_of(JOB.group) is None
    assert not report(watch, [0], step=6)


async def test_a_forgiven_group_gets_its_whole_time_again(
    watch: ProgressWatch, clock: Clock, stalled: list[int]
) -> None:
    report(watch, [0, 1])
    clock.now += 4
    watch.look()
    report(watch, [0, 1], stacks="Thread MainThread:\n")
    watch.look()
    watch.forgive(JOB.group)
    clock.now += 2
    watch.look()
    assert watch.stall_of(JOB.group) is None
    watch.forget(JOB.group)
    clock.now += 60
    watch.look()
    assert stalled == [1]


async def test_a_slow_process_is_noted_until_it_is_faster(watch: ProgressWatch) -> None:
    def slow_since() -> list[object]:
        watch.look()
        [(_, watched)] = watch._board.watched()
        return [pace.slow_since for pace in paces_of(watched)]

    report(watch, [0], step_seconds=1.3, waiting_seconds=0.3)
    report(watch, [1], step_seconds=1.3)
    assert slow_since() == [None, NOON]
    assert watch.slow_processes == 1
    report(watch, [1], step_seconds=1.15)
    assert slow_since() == [None, NOON]
    report(watch, [1], step_seconds=1.05)
    assert slow_since() == [None, None]


async def test_a_slow_process_is_asked_once_for_its_stacks_which_are_kept_while_it_is_slow(
    watch: ProgressWatch,
) -> None:
    def stacks() -> list[str]:
        watch.look()
        [(_, watched)] = watch._board.watched()
        return [pace.stack for pace in paces_of(watched)]

    def answer(**changes: Any) -> bool:
        changes = {"step_seconds": 1.3, **changes}
        return watch._board.take((1, 1), RankReport(process=1, step=1, **changes)).wants_stacks

    report(watch, [0], step_seconds=1.3, waiting_seconds=0.3)
    report(watch, [1], step_seconds=1.3)
    assert stacks() == ["", ""]
    assert answer()
    threads = "Thread MainThread:\n  load at data.py:7\n  read at disk.py:9\nThread other:\n  wait\n"
    assert not answer(stacks=threads)
    assert not answer()
    assert stacks() == ["", "load at data.py:7\nread at disk.py:9"]
    assert not answer(step_seconds=1.05)
    assert stacks() == ["", ""]
    answer()
    stacks()
    assert answer()


async def test_a_process_that_was_slow_to_the_end_keeps_its_factor(watch: ProgressWatch) -> None:
    report(watch, [0], step_seconds=1.3, waiting_seconds=0.3)
    report(watch, [1], step_seconds=1.3)
    watch.look()
    report(watch, [0, 1], activity=Activity.DONE)
    watch.look()
    [(_, watched)] = watch._board.watched()
    assert [(round(pace.slowness, 6), pace.slow_since) for pace in paces_of(watched)] == [
        (0, None),
        (1.3, NOON),
    ]


async def test_a_machine_that_is_slow_for_two_jobs_is_named_once(
    watch: ProgressWatch, caplog: pytest.LogCaptureFixture
) -> None:
    for job in (JOB, replace(JOB, id=2)):
        watch.follow(job, ["node-1", "node-2"])
        for process, seconds in ((0, 1.0), (1, 1.5)):
            report = RankReport(process=process, step=5, longest_step=0.1, step_seconds=seconds)
            watch._board.take((job.id, 1), report)
    watch.look()
    watch.look()
    assert watch.slow_machines == {"node-2": 2}
    assert caplog.text.count("machine 'node-2' is slow for 2 jobs") == 1
    watch.forget(JOB.group)
    watch.look()
    assert watch.slow_machines == {}


class Looks:
    """An Inspect that finds every process stopped, once it may answer."""

    def __init__(self) -> None:
        self.asked: list[set[int]] = []
        self.may_answer = asyncio.Event()

    async def __call__(self, _group: GroupRef, ranks: Collection[int]) -> dict[int, list[Outside]]:
        self.asked.append(set(ranks))
        await self.may_answer.wait()
        stacks = "Thread MainThread:\n  b.py:7 in read\n"
        return {rank: [Outside("process 7 (python) is stopped", stacks, is_stopped=True)] for rank in ranks}


async def stall_of_one(watch: ProgressWatch, clock: Clock) -> None:
    """Let process 1 fall silent and process 0 answer with its stacks."""
    report(watch, [0, 1])
    clock.now += 4
    watch.look()
    report(watch, [0], waiting=True, stacks="Thread MainThread:\n  a.py:1 in wait\n")
    clock.now += 10
    watch.look()


async def test_a_silent_process_is_looked_at_before_the_stall_is_called(
    watch: ProgressWatch, clock: Clock, stalled: list[int]
) -> None:
    looks = watch._inspect = Looks()
    await stall_of_one(watch, clock)
    await asyncio.sleep(0)
    assert (looks.asked, stalled) == ([{1}], [])
    looks.may_answer.set()
    await asyncio.gather(*watch._inspections.values())
    watch.look()
    assert stalled == [JOB.id]
    why = watch.stall_of(JOB.group)
    assert why is not None
    assert why.rank == 1
    assert "(process 7 (python) is stopped)" in why.summary
    assert why.summary.endswith("It stands at b.py:7 in read.")
    assert why.detail.startswith(
        "Rank 1: process (python) is stopped\nb.py:7 in read\nRank 0: \na.py:1 in wait"
    )


async def test_the_processes_of_a_held_job_are_left_alone(
    watch: ProgressWatch, clock: Clock, stalled: list[int]
) -> None:
    looks = watch._inspect = Looks()
    watch.follow(replace(JOB, tags=("held",)))
    await stall_of_one(watch, clock)
    await asyncio.sleep(0)
    assert (looks.asked, stalled) == ([], [JOB.id])  # and the tracker gives the attempt its whole time again


async def test_a_look_ends_when_the_attempt_goes_on(
    watch: ProgressWatch, clock: Clock, stalled: list[int]
) -> None:
    watch._inspect = Looks()
    await stall_of_one(watch, clock)
    [looking] = watch._inspections.values()
    report(watch, [0, 1], step=6)
    watch.look()
    await asyncio.wait([looking])
    assert (looking.cancelled(), watch._inspections, stalled) == (True, {}, [])


@pytest.fixture
def unbounded(watch: ProgressWatch) -> ProgressWatch:
    """The watch of the same job, whose deadline is learned."""
    watch.forget(JOB.group)
    watch.follow(job_of(spec(instances=2), state=JobState.RUNNING))
    return watch


def wait_for(watch: ProgressWatch, clock: Clock, seconds: int, *, waiting: bool = False) -> None:
    """Let both processes stand in one place, report and answer; process 0 may say that it waits."""
    for _ in range(seconds):
        clock.now += 1
        for process in (0, 1):
            waits = waiting and process == 0
            wants = report(watch, [process], waiting=waits)
            if wants:
                stacks = "Thread MainThread:\n  a.py:1 in load\n"
                report(watch, [process], waiting=waits, stacks=stacks)
        watch.look()


async def test_a_process_for_which_another_waits_is_found_after_30_s(
    unbounded: ProgressWatch, clock: Clock, stalled: list[int]
) -> None:
    report(unbounded, [0, 1])
    wait_for(unbounded, clock, 29, waiting=True)
    assert stalled == []
    wait_for(unbounded, clock, 9, waiting=True)
    assert stalled == [JOB.id]
    why = unbounded.stall_of(JOB.group)
    assert why is not None
    assert why.rank == 1
    assert "at most 30 s were allowed. It stands at a.py:1 in load." in why.summary


async def test_if_no_process_is_known_to_wait_an_attempt_has_nine_minutes(
    unbounded: ProgressWatch, clock: Clock, stalled: list[int]
) -> None:
    report(unbounded, [0, 1])
    wait_for(unbounded, clock, 539)
    assert stalled == []
    report(unbounded, [0, 1], step=6)
    wait_for(unbounded, clock, 539)
    assert stalled == []
    wait_for(unbounded, clock, 9)
    assert stalled == [JOB.id]
    why = unbounded.stall_of(JOB.group)
    assert why is not None
    assert "at most 540 s were allowed" in why.summary


async def test_a_frozen_process_is_found_after_30_s_without_any_deadline(
    unbounded: ProgressWatch, clock: Clock, stalled: list[int]
) -> None:
    looks = unbounded._inspect = Looks()
    looks.may_answer.set()
    report(unbounded, [0, 1])
    for _ in range(40):
        clock.now += 1
        if report(unbounded, [0], waiting=True):
            report(unbounded, [0], waiting=True, stacks="Thread MainThread:\n  a.py:1 in wait\n")
        unbounded.look()
        await asyncio.gather(*unbounded._inspections.values())
    assert stalled == [JOB.id]
    why = unbounded.stall_of(JOB.group)
    assert why is not None
    assert "at most 30 s were allowed" in why.summary
    assert looks.asked == [{1}]


async def test_processes_that_report_rarely_since_there_are_many_are_not_silent(
    unbounded: ProgressWatch, clock: Clock
) -> None:
    unbounded.follow(replace(job_of(spec(instances=5000), state=JobState.RUNNING), id=2))
    board = unbounded._board
    for process in range(5000):
        board.take((2, 1), RankReport(process=process, step=1))
    report(unbounded, [0, 1])
    for _ in range(3):
        clock.now += 9
        report(unbounded, [0, 1])
    clock.now += 6  # no step was made for 33 s, and the last reports were 6 s ago
    unbounded.look()
    assert board.pause_of(dict(board.watched())[ATTEMPT]) == pytest.approx(10, rel=0.01)
    assert report(unbounded, [0, 1]), "they are asked for their stacks"
