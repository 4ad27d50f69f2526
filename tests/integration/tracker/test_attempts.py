"""Attempts, backoffs and deadlines."""

import asyncio
import logging
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from job_tracker.backends.base import Observation
from job_tracker.common.clock import utc_now
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import LaunchFailed, StoreUnavailable
from job_tracker.domain.group import GroupRef, Phase
from job_tracker.domain.job import Job, JobState
from job_tracker.domain.policies import Deadlines, RetryPolicy
from job_tracker.logs.reader import LogRequest
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking import tracker
from tests.support.jobs import failures
from tests.support.patience import PATIENCE

if TYPE_CHECKING:
    from tests.support.tracked_service import Service
else:
    Service = Any

FOREVER = {"RUN_SECONDS": "forever"}
SHORTLY, AT_LENGTH = timedelta(seconds=0.05), timedelta(hours=1)
ON_CRASH = RetryPolicy(max_attempts=3, backoff=SHORTLY, retry_on=(Category.CRASHED,))
MUCH_LATER = replace(ON_CRASH, max_attempts=2, backoff=AT_LENGTH, max_backoff=AT_LENGTH)


async def test_a_failed_group_is_restarted_as_a_whole(service: Service) -> None:
    job = await service.submit(FOREVER, instances=3, retry=ON_CRASH)
    first = await service.reaches(job.id, JobState.RUNNING)
    service.world.end_rank(first.group, 2, 9)
    second = await service.until(job.id, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
    assert set(service.world.live) == {second.group}
    assert second.group.name == f"{first.group.name}-r1"
    assert [rank.phase for rank in second.ranks] == [Phase.RUNNING] * 3
    assert [(attempt, why.category) for attempt, why in failures(second)] == [(1, Category.CRASHED)]
    for rank in range(3):
        service.world.end_rank(second.group, rank, 0)
    last = await service.reaches(job.id, JobState.SUCCEEDED)
    assert (last.attempt, last.diagnosis, len(failures(last))) == (2, None, 1)


async def test_the_log_names_the_failure_of_each_attempt_and_none_for_a_success(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "job_tracker.tracking.tracker")
    job = await service.submit(FOREVER, retry=ON_CRASH)
    first = await service.reaches(job.id, JobState.RUNNING)
    service.world.end_rank(first.group, 0, 9)
    second = await service.until(job.id, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
    service.world.end_rank(second.group, 0, 0)
    await service.reaches(job.id, JobState.SUCCEEDED)
    async with asyncio.timeout(PATIENCE):  # a move is logged right after it is written
        while not any("-> succeeded" in message for message in caplog.messages):
            await asyncio.sleep(0)
    assert f"job {job.id}: running -> backoff, attempt 1 (crashed)" in caplog.messages
    assert f"job {job.id}: running -> succeeded, attempt 2" in caplog.messages


async def test_an_attempt_begins_only_when_the_previous_one_is_gone(service: Service) -> None:
    alive: list[set[int]] = []
    launch = service.backend.launch

    async def looking(job: Job) -> Observation:
        alive.append({group.attempt for group in service.world.live})
        return await launch(job)

    service.backend.launch = looking  # type: ignore[method-assign]
    job = await service.submit({"EXIT_CODE": "1", "FAIL_RANK": "1", "RUN_SECONDS": "0"}, 2, retry=ON_CRASH)
    job = await service.reaches(job.id, JobState.FAILED)
    assert (job.attempt, alive) == (3, [set(), set(), set()])
    assert [attempt for attempt, _ in failures(job)] == [1, 2, 3]
    assert job.diagnosis is not None
    assert job.diagnosis.category is Category.CRASHED


async def test_a_launch_with_a_retryable_failure_is_followed_by_another_attempt(service: Service) -> None:
    launch, refusals = service.backend.launch, iter([True, False])
    full = Diagnosis(category=Category.QUOTA_EXCEEDED, summary="Full.", resolution="Wait.", retryable=True)

    async def refused_once(job: Job) -> Observation:
        if next(refusals):
            raise LaunchFailed(full)
        return await launch(job)

    service.backend.launch = refused_once  # type: ignore[method-assign]
    job = await service.submit(retry=RetryPolicy(max_attempts=2, backoff=SHORTLY))
    job = await service.reaches(job.id, JobState.SUCCEEDED)
    assert failures(job) == [(1, full)]


async def test_other_jobs_run_during_a_back_off_and_then_the_job_is_first_again(service: Service) -> None:
    await service.stop()
    service.options["repair_period"] = timedelta(seconds=0.05)
    await service.start()
    failing = await service.submit({"EXIT_CODE": "1"}, instances=4, retry=MUCH_LATER)
    await service.reaches(failing.id, JobState.BACKOFF)
    others = [await service.submit(FOREVER, instances=4) for _ in range(2)]
    first = await service.reaches(others[0].id, JobState.RUNNING)
    service.back_by = -2 * AT_LENGTH
    await service.reaches(failing.id, JobState.QUEUED)
    for rank in range(4):
        service.world.end_rank(first.group, rank, 0)
    await service.reaches(failing.id, JobState.FAILED)
    await service.reaches(others[1].id, JobState.RUNNING)
    assert [group.job_id for group in service.world.launches] == [
        *(failing.id, others[0].id, failing.id, others[1].id)
    ]


async def test_a_job_in_backoff_is_cancelled_at_once(service: Service) -> None:
    job = await service.submit({"EXIT_CODE": "1"}, retry=MUCH_LATER)
    waiting = await service.reaches(job.id, JobState.BACKOFF)
    assert waiting.due_at is not None
    view = await service.jobs.cancel(BUILT_IN, job.id)
    assert (view.job.state, view.job.due_at, len(failures(view.job))) == (JobState.CANCELLED, None, 1)


async def test_a_cancel_while_a_failed_group_is_stopped_wins(service: Service) -> None:
    stopping, go_on = asyncio.Event(), asyncio.Event()
    stop = service.backend.stop

    async def slow(group: GroupRef, *arguments: Any) -> Any:
        stopping.set()
        await go_on.wait()
        return await stop(group, *arguments)

    service.backend.stop = slow  # type: ignore[assignment,method-assign]
    job = await service.submit({"EXIT_CODE": "1"}, retry=ON_CRASH)
    await stopping.wait()
    view = await service.jobs.cancel(BUILT_IN, job.id)
    assert view.job.ending is not None
    assert view.job.ending.state is JobState.CANCELLED
    go_on.set()
    job = await service.reaches(job.id, JobState.CANCELLED)
    assert (job.attempt, [why.category for _, why in failures(job)]) == (1, [Category.CRASHED])


async def test_a_back_off_continues_after_a_restart(service: Service) -> None:
    job = await service.submit({"EXIT_CODE": "1"}, retry=MUCH_LATER)
    waiting = await service.reaches(job.id, JobState.BACKOFF)
    assert waiting.due_at is not None
    service.options["repair_period"] = timedelta(seconds=0.05)
    await service.restart()
    assert (await service.view(job.id)).job == waiting
    service.back_by = utc_now() - waiting.due_at  # now the backoff is over
    job = await service.reaches(job.id, JobState.FAILED)
    assert job.attempt == 2
    assert job.started_at is not None
    assert job.started_at >= waiting.due_at


@pytest.mark.parametrize(
    ("deadlines", "category"),
    [
        (Deadlines(run=SHORTLY), Category.DEADLINE_EXCEEDED),
        (Deadlines(queue=SHORTLY), Category.QUEUED_TOO_LONG),
    ],
)
async def test_a_job_fails_at_its_deadline(
    service: Service, deadlines: Deadlines, category: Category
) -> None:
    if deadlines.queue:
        await service.reaches((await service.submit(FOREVER, instances=4)).id, JobState.RUNNING)
    job = await service.submit(FOREVER, deadlines=deadlines, retry=RetryPolicy(max_attempts=3))
    job = await service.reaches(job.id, JobState.FAILED)
    assert job.diagnosis is not None
    assert job.diagnosis.category is category
    assert job.group not in service.world.live


async def test_a_deadline_that_passed_while_the_service_was_down_counts(service: Service) -> None:
    job = await service.submit(FOREVER, deadlines=Deadlines(run=AT_LENGTH))
    await service.reaches(job.id, JobState.RUNNING)
    await service.stop()
    service.back_by = -2 * AT_LENGTH
    await service.start()
    assert (await service.reaches(job.id, JobState.FAILED)).diagnosis is not None


async def test_logs_are_those_of_the_requested_attempt(service: Service) -> None:
    patient = RetryPolicy(max_attempts=2, backoff=timedelta(seconds=0.2), retry_on=(Category.CRASHED,))
    job = await service.submit({"EXIT_CODE": "1", "PRINT": "hello"}, retry=patient)

    async def read(**options: Any) -> list[tuple[int, str]]:
        pieces = service.jobs.logs(BUILT_IN, job.id, LogRequest(**options))
        return [(piece.attempt, piece.text) async for piece in pieces]

    followed = asyncio.create_task(read(follow=True))
    await service.reaches(job.id, JobState.FAILED)
    assert await followed == [(1, "hello\n"), (2, "hello\n")]
    assert await read() == [(2, "hello\n")]
    assert await read(attempt=1, follow=True) == [(1, "hello\n")]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_clock_that_is_set_back_does_not_extend_a_back_off(
    service: Service, is_restarted: bool
) -> None:
    await service.stop()
    service.options["repair_period"] = timedelta(seconds=0.05)
    await service.start()
    soon = RetryPolicy(max_attempts=2, backoff=timedelta(seconds=0.5), retry_on=(Category.CRASHED,))
    job = await service.submit({"EXIT_CODE": "1"}, retry=soon)
    await service.reaches(job.id, JobState.BACKOFF)
    service.back_by = AT_LENGTH
    if is_restarted:
        await service.restart()
    failed = await service.reaches(job.id, JobState.FAILED)
    assert failed.attempt == 2


async def test_writes_with_lost_answers_delay_no_job(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.stop()
    service.options["repair_period"] = AT_LENGTH
    lost: list[tuple[JobState, int]] = []
    update = SqliteStore.update

    async def losing(store: SqliteStore, job: Job, **how: Any) -> Job:
        saved = await update(store, job, **how)
        if (job.state, job.attempt) in lost:
            return saved
        lost.append((job.state, job.attempt))
        raise StoreUnavailable("the answer is lost")

    monkeypatch.setattr(SqliteStore, "update", losing)
    # So that the look at deadlines after the submission does not find the backoff by chance.
    monkeypatch.setattr(tracker, "_DEADLINE_TOLERANCE", timedelta(0))
    await service.start()
    longer_than_a_step_takes = replace(ON_CRASH, backoff=timedelta(seconds=1))
    job = await service.submit(FOREVER, retry=longer_than_a_step_takes)
    async with asyncio.timeout(PATIENCE):  # shorter than the period of repair
        first = await service.reaches(job.id, JobState.RUNNING)
        service.world.end_rank(first.group, 0, 9)
        second = await service.until(job.id, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
        service.world.end_rank(second.group, 0, 0)
        await service.reaches(job.id, JobState.SUCCEEDED)
    started = [JobState.LAUNCHING, JobState.RUNNING]
    assert [state for state, _ in lost][:6] == [*started, JobState.BACKOFF, JobState.QUEUED, *started]


@pytest.mark.parametrize("refused", [*(state for state in JobState if state is not JobState.CANCELLED)])
async def test_writes_that_keep_failing_are_retried_after_pauses(
    service: Service, monkeypatch: pytest.MonkeyPatch, refused: JobState
) -> None:
    await service.stop()
    policy = RetryPolicy() if refused is JobState.FAILED else ON_CRASH
    tries: list[float] = []
    have_been_enough = asyncio.Event()
    update = SqliteStore.update

    async def refusing(store: SqliteStore, job: Job, **how: Any) -> Job:
        if job.state is not refused:
            return await update(store, job, **how)
        tries.append(time.monotonic())
        if len(tries) == 5:
            have_been_enough.set()
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(SqliteStore, "update", refusing)
    await service.start()
    runs = {JobState.RUNNING: FOREVER, JobState.SUCCEEDED: {}}.get(refused, {"EXIT_CODE": "1"})
    await service.submit(runs, retry=policy)
    async with asyncio.timeout(PATIENCE):
        await have_been_enough.wait()
    assert tries[4] - tries[0] > 0.5
