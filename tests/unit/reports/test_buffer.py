"""The buffer of reports forgets attempts that no longer report, even if another replica saw their end."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from job_tracker.domain.errors import AttemptOver
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.domain.policies import NumberPolicy, OnNonfinite
from job_tracker.domain.telemetry import Artifact, AttemptReport, MetricPoint
from job_tracker.reports import Report, ReportBuffer
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.decisions import divergence
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE


class Clock:
    now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "jobs.db")
    yield opened
    await opened.close()


async def running(store: SqliteStore) -> Job:
    job = await store.submit(spec(), NOON, None, 100)
    return await store.update((await store.update(job.admitted(NOON))).running(NOON))


async def test_an_attempt_ended_by_another_replica_is_forgotten_and_refused(store: SqliteStore) -> None:
    clock, job = Clock(), await running(store)
    book = ReportBuffer(store, clock)
    await book.take((job.id, 1), Report({"step": 1}))
    await book.write()
    await store.update(job.ended(Ending(JobState.FAILED, NOON), NOON))
    clock.now += timedelta(seconds=1)
    await book.take((job.id, 1), Report({"step": 2}))  # this replica does not know yet
    await book.write()
    assert book.reporters == 0
    with pytest.raises(AttemptOver):
        await book.take((job.id, 1), Report({"step": 3}))


async def test_a_report_that_arrived_before_the_end_counts_though_it_is_written_later(
    store: SqliteStore,
) -> None:
    clock, job = Clock(), await running(store)
    book = ReportBuffer(store, clock)
    await book.take((job.id, 1), Report({"step": 9}))
    await store.update(job.ended(Ending(JobState.SUCCEEDED, NOON), NOON))  # by another replica
    clock.now += timedelta(seconds=1)
    await book.write()
    progress = (await store.get(job.id)).progress
    assert progress is not None
    assert progress.step == 9


async def test_unwritten_artifacts_are_bounded_and_the_newest_stay(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, written = await running(store), list[AttemptReport]()

    async def record(reports: Sequence[AttemptReport]) -> Sequence[bool]:
        written.extend(reports)
        return [True] * len(reports)

    monkeypatch.setattr(store, "record_reports", record)
    book = ReportBuffer(store, Clock())
    for part in range(3):
        names = [f"{part}-{number}" for number in range(5000)]
        await book.take((job.id, 1), Report(artifacts=[Artifact(name=name, uri="u") for name in names]))
    await book.write()
    [report] = written
    assert [report.artifacts[0].name, report.artifacts[-1].name] == ["1-0", "2-4999"]


async def test_a_forbidden_number_is_kept_after_many_others_that_are_not_finite(store: SqliteStore) -> None:
    fails = spec(numbers=NumberPolicy(on_nonfinite=OnNonfinite.FAIL))
    job = await store.submit(fails, NOON, None, 100)
    job = await store.update((await store.update(job.admitted(NOON))).running(NOON))
    book = ReportBuffer(store, Clock())
    names = [*(f"accuracy of class {number}" for number in range(80)), "loss"]
    await book.take((job.id, 1), Report(points=[MetricPoint(name, 1, NOON, math.nan) for name in names]))
    await book.write()
    diverged = divergence(await store.get(job.id))
    assert diverged is not None
    assert "'loss' is NaN" in diverged.summary


async def test_a_silent_attempt_is_forgotten_and_may_report_again(store: SqliteStore) -> None:
    clock, jobs = Clock(), [await running(store) for _ in range(3)]
    book = ReportBuffer(store, clock)
    for job in jobs:
        await book.take((job.id, 1), Report({"step": 1, "total_steps": 9}))
    await book.write()
    clock.now += timedelta(minutes=11)
    await book.take((jobs[0].id, 1), Report({"step": 2}))
    await book.write()
    assert book.reporters == 1
    await book.take((jobs[1].id, 1), Report({"step": 3}))
    await book.write()
    assert [(await store.get(job.id)).progress.step for job in jobs[:2]] == [2, 3]  # type: ignore[union-attr]
    assert (await store.get(jobs[1].id)).progress.total_steps == 9  # type: ignore[union-attr]


async def test_the_watch_knows_when_all_announced_steps_are_done(store: SqliteStore) -> None:
    job = await running(store)
    book = ReportBuffer(store, Clock())
    book.ranks.open()
    book.ranks.follow(job)
    [(attempt, watched)] = book.ranks.watched()
    for counts, is_done in (({"step": 9}, False), ({"total_steps": 10}, False), ({"step": 10}, True)):
        await book.take(attempt, Report(counts))
        assert watched.has_all_steps is is_done
    await book.write()
    book.ranks.open()  # another leader
    book.ranks.follow(await store.get(job.id))
    assert next(known.has_all_steps for _, known in book.ranks.watched())


async def test_an_attempt_may_be_closed_during_a_write(store: SqliteStore) -> None:
    clock, job = Clock(), await running(store)
    book = ReportBuffer(store, clock)
    await book.take((job.id, 1), Report({"step": 1}))
    record = store.record_reports

    async def closing(*reports: object) -> object:
        book.close((job.id, 1))
        await record(*reports)  # type: ignore[arg-type]
        return [False]

    store.record_reports = closing  # type: ignore[assignment,method-assign]
    await book.write()
    assert book.reporters == 0


async def test_writing_continues_after_an_unexpected_error(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job_tracker.reports.buffer._WRITE_SECONDS", 0.01)
    job, record, troubles = await running(store), store.record_reports, iter([RuntimeError("no thread left")])

    async def fails_once(given: Sequence[AttemptReport]) -> Sequence[bool]:
        if trouble := next(troubles, None):
            raise trouble
        return await record(given)

    monkeypatch.setattr(store, "record_reports", fails_once)
    book = ReportBuffer(store, Clock())
    writing = asyncio.create_task(book.run())
    await book.take((job.id, 1), Report({"step": 1}))
    with store.changes() as changes:
        async with asyncio.timeout(PATIENCE):
            await anext(changes)
    assert (await store.get(job.id)).progress.step == 1  # type: ignore[union-attr]
    writing.cancel()
    await asyncio.wait([writing])
