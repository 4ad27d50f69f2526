"""The keys of report tokens, as a replica knows them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from job_tracker.common.tasks import background, end
from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.job import Ending, JobState
from job_tracker.domain.report_key import ReportKey
from job_tracker.reports import ReportKeys, keys
from job_tracker.store.sqlite import SqliteStore
from tests.support.jobs import NOON, spec


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


class Away:
    """A store that can be away, and that records when it was asked."""

    def __init__(self) -> None:
        self.problem = ""
        self.kept = [ReportKey(id=1, secret=b"first")]
        self.asked = asyncio.Event()
        self.reads = 0

    async def access_version(self) -> int:
        self.asked.set()
        if self.problem:
            raise StoreUnavailable(self.problem)
        return len(self.kept)

    async def report_keys(self) -> Sequence[ReportKey]:
        self.reads += 1
        return self.kept

    async def rotate_report_key(
        self, secret: bytes, at: datetime, by: str, *, event: AuditEvent | None = None
    ) -> ReportKey | None:
        raise AssertionError("not used here")

    async def remove_report_key(
        self, key_id: int, at: datetime, *, event: AuditEvent | None = None
    ) -> ReportKey | None:
        raise AssertionError("not used here")

    async def purge_report_keys(self) -> Sequence[int]:
        return []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "CHECK_SECONDS", 0.001)
    monkeypatch.setattr(keys, "PURGE_SECONDS", 0)


async def test_keys_are_read_again_only_after_a_change() -> None:
    store = Away()
    known = await ReportKeys.open(store)
    for _ in range(3):
        await known.refresh()
    assert store.reads == 1
    store.kept = [*store.kept, ReportKey(id=2, secret=b"second")]
    await known.refresh()
    assert (store.reads, known.current.id) == (2, 2)


async def test_while_the_store_is_away_the_keys_stay_and_a_new_one_cannot_be_found() -> None:
    store = Away()
    known = await ReportKeys.open(store)
    store.problem = "the store is away"
    with pytest.raises(StoreUnavailable):
        await known.refresh()
    found = await known.find(1)
    assert found is not None
    assert (found.secret, known.current.id) == (b"first", 1)
    with pytest.raises(StoreUnavailable):
        await known.find(2)


@pytest.mark.usefixtures("quick")
async def test_a_problem_is_logged_once_and_changes_are_followed_afterwards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Away()
    known = await ReportKeys.open(store)
    following = background(known.follow(), "keys of report tokens")
    store.problem = "the store is away"
    for _ in range(3):
        store.asked.clear()
        await store.asked.wait()
    store.problem = ""
    store.kept = [*store.kept, ReportKey(id=2, secret=b"second")]
    while known.current.id == 1:
        store.asked.clear()
        await store.asked.wait()
    await end(following)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["the keys of report tokens cannot be checked: the store is away"]


@pytest.mark.usefixtures("quick")
async def test_a_key_goes_by_itself_after_the_last_attempt_that_may_use_it(store: SqliteStore) -> None:
    job = await store.update((await store.submit(spec(), NOON, None, 100)).admitted(NOON))
    await store.rotate_report_key(b"next", NOON, "ada")
    known = await ReportKeys.open(store)
    following = background(known.follow(), "keys of report tokens")
    assert known.of(job.id, 1).id == 1
    await known.purge()
    assert known.of(job.id, 1).id == 1
    await store.update(job.ended(Ending(JobState.FAILED, NOON), NOON))
    while known.of(job.id, 1).id == 1:
        await asyncio.sleep(0.001)
    assert [key.id for key in await store.report_keys()] == [2]
    await end(following)
