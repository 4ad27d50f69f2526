"""Waiting writes are committed together, and do not affect each other."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.domain.errors import JobNotFound, StaleJob, StoreLost, StoreUnavailable
from job_tracker.domain.job import JobState
from job_tracker.store.lease import Term
from job_tracker.store.sqlite import SqliteStore
from job_tracker.store.sqlite.schema import open_file
from job_tracker.store.sqlite.writer import GroupCommitter
from tests.support.jobs import NOON, spec


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[sqlite3.Connection]:
    made, _ = open_file(tmp_path / "jobs.db")
    made.execute("CREATE TABLE notes (text TEXT NOT NULL)")
    yield made
    made.close()


@pytest.fixture
async def writer(connection: sqlite3.Connection) -> AsyncIterator[GroupCommitter]:
    made = GroupCommitter(connection)
    yield made
    await made.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = await SqliteStore.open(tmp_path / "jobs.db")
    yield made
    await made.close()


def note(text: str | None) -> Callable[[sqlite3.Connection], int]:
    return lambda db: db.execute("INSERT INTO notes VALUES (?)", (text,)).rowcount


def texts(connection: sqlite3.Connection) -> list[str]:
    return [row["text"] for row in connection.execute("SELECT text FROM notes ORDER BY rowid")]


async def test_writes_are_done_in_order_of_arrival(
    writer: GroupCommitter, connection: sqlite3.Connection
) -> None:
    await asyncio.gather(*(writer.run(note(str(number))) for number in range(2000)))
    assert texts(connection) == [str(number) for number in range(2000)]


class Commits:
    """Counts the transactions of a writer, as its `Rows`."""

    number = 0

    def begin(self) -> None:
        self.number += 1

    def write(self, db: sqlite3.Connection) -> None:
        """Add nothing."""


async def test_under_load_a_commit_waits_for_as_many_writes_as_the_last_one_had(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job_tracker.store.sqlite.writer._PATIENCE", 60)
    commits = Commits()
    writer = GroupCommitter(connection, rows=commits)
    await asyncio.gather(*(writer.run(note("before")) for _ in range(21)))
    assert commits.number == 1  # callers that run at the same time share it
    early = [asyncio.ensure_future(writer.run(note("early"))) for _ in range(20)]
    for _ in range(5):
        await asyncio.sleep(0)
    await asyncio.gather(*early, writer.run(note("last")))
    assert commits.number == 2
    await writer.close()


async def test_fewer_writes_than_before_are_committed_all_the_same(connection: sqlite3.Connection) -> None:
    commits = Commits()
    writer = GroupCommitter(connection, rows=commits)
    await asyncio.gather(*(writer.run(note("before")) for _ in range(21)))
    for after in range(3):
        assert await writer.run(note("after")) == 1
        assert commits.number == 2 + after
    await writer.close()


async def test_a_failed_write_does_not_affect_others(
    writer: GroupCommitter, connection: sqlite3.Connection
) -> None:
    written = [f"{number}" for number in range(50)]
    outcomes = await asyncio.gather(
        *(writer.run(note(text)) for text in written[:25]),
        writer.run(note(None)),
        *(writer.run(note(text)) for text in written[25:]),
        return_exceptions=True,
    )
    [error] = [outcome for outcome in outcomes if outcome != 1]
    assert isinstance(error, StoreUnavailable)
    assert "NOT NULL" in str(error)
    assert texts(connection) == written


async def test_a_refusal_reaches_its_caller(writer: GroupCommitter, connection: sqlite3.Connection) -> None:
    def refuse(_: sqlite3.Connection) -> int:
        raise JobNotFound(7)

    outcomes = await asyncio.gather(writer.run(note("a")), writer.run(refuse), return_exceptions=True)
    assert outcomes[0] == 1
    assert isinstance(outcomes[1], JobNotFound)
    assert texts(connection) == ["a"]


async def test_waiting_writes_are_done_on_close_and_later_calls_are_refused(
    connection: sqlite3.Connection,
) -> None:
    writer = GroupCommitter(connection)
    waiting = [asyncio.ensure_future(writer.run(note(str(number)))) for number in range(100)]
    await asyncio.sleep(0)
    await writer.close()
    assert await asyncio.gather(*waiting) == [1] * 100
    with pytest.raises(StoreUnavailable, match="closed"):
        await writer.run(note("late"))


async def test_a_write_of_a_cancelled_caller_is_announced_to_others(store: SqliteStore) -> None:
    job = await store.submit(spec(), NOON, None, 10)
    with store.changes() as changes:
        impatient = asyncio.ensure_future(store.update(job.admitted(NOON)))
        await asyncio.sleep(0)
        impatient.cancel()
        assert (await store.get(job.id)).state is JobState.QUEUED
        assert await anext(changes) == (job.id, JobState.LAUNCHING)
    assert (await store.get(job.id)).state is JobState.LAUNCHING


async def test_a_write_that_may_not_be_durable_fails_but_readers_see_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await store.submit(spec(), NOON, None, 10)
    assert await store.get(job.id) == job
    looks = iter([None, StoreUnavailable("no descriptor left to look with")])

    def check() -> None:
        if error := next(looks, None):
            raise error

    monkeypatch.setattr(store._writer, "_check", check)
    with store.changes() as changes:
        with pytest.raises(StoreUnavailable, match="no descriptor left"):
            await store.update(job.admitted(NOON))
        assert await anext(changes) == (job.id, JobState.LAUNCHING)
    written = await store.get(job.id)
    assert (written.state, written.version) == (JobState.LAUNCHING, job.version + 1)
    assert (await store.update(written.running(NOON))).state is JobState.RUNNING


async def test_an_unforeseen_failure_of_a_write_does_not_affect_other_or_later_writes(
    writer: GroupCommitter, connection: sqlite3.Connection
) -> None:
    def fail(db: sqlite3.Connection) -> int:
        note("half of it")(db)
        raise OverflowError("too large")

    outcomes = await asyncio.gather(
        writer.run(note("a")), writer.run(fail), writer.run(note("b")), return_exceptions=True
    )
    assert [outcomes[0], outcomes[2]] == [1, 1]
    assert isinstance(outcomes[1], OverflowError)
    assert await writer.run(note("c")) == 1
    assert texts(connection) == ["a", "b", "c"]


async def test_an_unforeseen_failure_of_a_check_does_not_end_later_writes(
    connection: sqlite3.Connection,
) -> None:
    looks = iter([MemoryError("no room to look")])

    def check() -> None:
        if error := next(looks, None):
            raise error

    writer = GroupCommitter(connection, check)
    with pytest.raises(StoreUnavailable, match="no room to look"):
        await writer.run(note("a"))
    assert await writer.run(note("b")) == 1
    await writer.close()


async def test_a_job_that_another_program_changed_is_read_again_after_a_refused_write(
    store: SqliteStore, tmp_path: Path
) -> None:
    job = await store.submit(spec(), NOON, None, 10)
    assert await store.get(job.id) == job
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
        other.execute("UPDATE jobs SET version = version + 5")
    with pytest.raises(StaleJob):
        await store.update(job.admitted(NOON))
    assert (await store.get(job.id)).version == job.version + 5
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
        other.execute("DELETE FROM jobs")
    with pytest.raises(JobNotFound):
        await store.update(job.admitted(NOON))
    with pytest.raises(JobNotFound):
        await store.get(job.id)


async def test_a_campaign_in_the_same_batch_as_a_failed_write_succeeds(store: SqliteStore) -> None:
    def fail(_: sqlite3.Connection) -> int:
        raise sqlite3.IntegrityError("not allowed")

    writes = asyncio.gather(
        *(store._writer.run(lambda _: None) for _ in range(3)),
        store.lead("here", timedelta(seconds=15)),
        store._writer.run(fail),
        return_exceptions=True,
    )
    *_, term, error = await writes
    assert isinstance(error, StoreUnavailable)
    assert isinstance(term, Term)
    assert await store.lead("there", timedelta(seconds=15)) is None


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB])
async def test_a_damaged_file_or_disk_is_a_loss(writer: GroupCommitter, code: int) -> None:
    def fail(_: sqlite3.Connection) -> int:
        error = sqlite3.DatabaseError("disk I/O error")
        error.sqlite_errorcode = code
        raise error

    with pytest.raises(StoreLost, match="disk I/O error"):
        await writer.run(fail)
    with pytest.raises(StoreLost):
        await writer.run(note("later"))
