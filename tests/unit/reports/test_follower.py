"""Logs are followed for reports: in turns, a few at a time, but not for jobs that report by calls."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.fake import FakeBackend
from job_tracker.common.clock import utc_now
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import Job
from job_tracker.logs.records import BEGINNING, last_time
from job_tracker.logs.writing import RecordMaker
from job_tracker.reports import LogFollower, Report, ReportBuffer
from job_tracker.reports.turns import Turns
from job_tracker.store.sqlite import SqliteStore
from tests.support.jobs import NOON, spec


class CountedBackend(FakeBackend):
    """Counts the logs that are open, and the most that were open at once."""

    reading = 0
    most = 0
    troubles = 0
    """Number of reads that fail."""
    breaks = False
    """Whether a followed log ends after the lines that were printed before it was opened."""

    async def logs(
        self,
        group: GroupRef,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        if self.troubles:
            self.troubles -= 1
            raise BackendUnavailable("too many open files")
        self.reading += 1
        self.most = max(self.most, self.reading)
        try:
            for goes_on in (
                (True, False) if follow and not self.breaks else (False,)
            ):  # at the end, the lines printed meanwhile
                read = super().logs(group, rank, follow=goes_on, after=after, tail_lines=tail_lines)
                async for piece in read:
                    after = last_time(piece)
                    yield piece
        finally:
            self.reading -= 1


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "jobs.db")
    yield opened
    await opened.close()


@pytest.fixture
async def backend() -> AsyncIterator[CountedBackend]:
    made = CountedBackend()
    yield made
    await made.close()


@pytest.fixture
async def book(store: SqliteStore) -> ReportBuffer:
    return ReportBuffer(store, utc_now)


async def running(store: SqliteStore, backend: FakeBackend, *lines: str) -> Job:
    """A job that runs until it is stopped, and has printed these lines."""
    job_spec = spec({"RUN_SECONDS": "forever", "PRINT": "\n".join(lines)})
    job = await store.submit(job_spec, NOON, None, 100)
    job = await store.update((await store.update(job.admitted(NOON))).running(NOON))
    await backend.launch(job)
    return job


def prints(backend: FakeBackend, job: Job, line: str) -> None:
    backend.world.live[job.group].printed[0] += RecordMaker().records(f"{line}\n".encode())


def progress(step: int) -> str:
    return f'::progress:: {{"step": {step}}}'


async def until_at(book: ReportBuffer, job: Job, step: int) -> None:
    while (await book.progress_of((job.id, 1))).step != step:
        await asyncio.sleep(0.005)


async def until_reading(backend: CountedBackend, number: int) -> None:
    while backend.reading != number:
        await asyncio.sleep(0.005)


async def test_many_logs_are_followed_in_turns(
    store: SqliteStore, backend: CountedBackend, book: ReportBuffer
) -> None:
    jobs = [await running(store, backend, progress(1)) for _ in range(12)]
    follower = LogFollower(book, backend, Turns(3, seconds=0.01))
    for job in jobs:
        follower.follow(job)
    for job in jobs:
        await until_at(book, job, 1)
        prints(backend, job, progress(2))
        await book.write()
    prints(backend, jobs[-1], progress(3))
    await follower.finish(jobs[-1].group)
    # The last lines of a log that waits for its turn are read when it ends.
    for job in jobs[:-1]:
        prints(backend, job, progress(4))
        await backend.stop(job.group, timedelta(0))
        await follower.finish(job.group)
    assert [(await store.get(job.id)).progress.step for job in jobs] == [4] * 11 + [3]  # type: ignore[union-attr]
    assert backend.most <= 3 + 1  # one more is being read to its end
    assert backend.reading == 0


async def test_a_log_is_followed_again_after_read_errors(
    store: SqliteStore, backend: CountedBackend, book: ReportBuffer
) -> None:
    job = await running(store, backend, progress(1))
    backend.troubles = 3
    follower = LogFollower(book, backend, Turns(1, seconds=0.001))
    follower.follow(job)
    await until_at(book, job, 1)
    assert backend.troubles == 0
    await follower.close()


async def test_lines_after_the_early_end_of_a_followed_log_are_read_when_the_group_has_stopped(
    store: SqliteStore, backend: CountedBackend, book: ReportBuffer
) -> None:
    backend.breaks = True
    job = await running(store, backend, progress(1))
    follower = LogFollower(book, backend)
    follower.follow(job)
    task = follower._followers[job.id, 1].task
    assert task is not None
    await task
    prints(backend, job, progress(2))
    await backend.stop(job.group, timedelta(0))
    await follower.finish(job.group)
    assert ((await store.get(job.id)).progress or _nothing()).step == 2


async def test_a_log_that_cannot_be_read_at_the_end_is_named_in_the_log_of_the_service(
    store: SqliteStore, backend: CountedBackend, book: ReportBuffer, caplog: pytest.LogCaptureFixture
) -> None:
    backend.breaks = True
    job = await running(store, backend, progress(1))
    follower = LogFollower(book, backend)
    follower.follow(job)
    task = follower._followers[job.id, 1].task
    assert task is not None
    await task
    prints(backend, job, progress(2))
    await backend.stop(job.group, timedelta(0))
    backend.troubles = 1
    await follower.finish(job.group)
    assert f"job {job.id}: its last reports may be missing: too many open files" in caplog.messages
    assert ((await store.get(job.id)).progress or _nothing()).step == 1


@pytest.mark.parametrize("when", ["before it is followed", "while it is followed"])
async def test_the_log_of_an_attempt_that_reports_by_calls_is_not_followed(
    store: SqliteStore, backend: CountedBackend, book: ReportBuffer, when: str
) -> None:
    job = await running(store, backend, "nothing of interest")
    follower = LogFollower(book, backend)
    if when == "while it is followed":
        follower.follow(job)
        await until_reading(backend, 1)
    await book.take((job.id, 1), Report({"step": 7}), by_call=True)
    follower.follow(job)
    await until_reading(backend, 0)
    follower.follow(job)  # the tracker repeats this
    await asyncio.sleep(0)
    assert backend.reading == 0
    await follower.finish(job.group)
    assert ((await store.get(job.id)).progress or _nothing()).step == 7
    await follower.close()


async def test_a_log_without_reports_is_left_if_its_attempt_calls_another_replica(
    store: SqliteStore, backend: CountedBackend, book: ReportBuffer
) -> None:
    calls, prints_lines = await running(store, backend, "-"), await running(store, backend, progress(1))
    follower = LogFollower(book, backend, Turns(1, seconds=0.01))
    elsewhere, step = ReportBuffer(store, utc_now), 1
    follower.follow(calls)
    follower.follow(prints_lines)
    task = next(each.task for each in follower._followers.values() if each.group == calls.group)
    assert task is not None
    while not task.done():
        step += 1
        await elsewhere.take((calls.id, 1), Report({"step": step}), by_call=True)
        await elsewhere.write()
        prints(backend, prints_lines, progress(step))
        await asyncio.sleep(0.005)
    prints(backend, prints_lines, progress(step + 1))
    await backend.stop(prints_lines.group, timedelta(0))
    await follower.finish(prints_lines.group)
    assert ((await store.get(prints_lines.id)).progress or _nothing()).step == step + 1
    await follower.close()


def _nothing() -> Any:
    raise AssertionError("nothing was reported")
