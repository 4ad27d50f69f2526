"""Lists are read in a thread, which may still read when the caller is gone."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.job import Job
from job_tracker.store.jobs import JobFilter
from job_tracker.store.sqlite import SqliteStore, rows
from tests.support.jobs import NOON, spec


async def test_a_store_is_closed_only_after_the_list_that_a_cancelled_caller_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the thread uses a closed connection, which ends the process by SIGSEGV."""
    store = await SqliteStore.open(tmp_path / "jobs.db")
    for _ in range(3):
        await store.submit(spec(), NOON, None, 1000)
    began, goes_on = asyncio.Event(), threading.Event()
    loop, job_of, read = asyncio.get_running_loop(), rows.job_of, list[Job]()

    def slow(row: sqlite3.Row) -> Job:
        loop.call_soon_threadsafe(began.set)
        goes_on.wait()
        read.append(job_of(row))
        return read[-1]

    monkeypatch.setattr(rows, "job_of", slow)
    listing = asyncio.create_task(store.list_jobs(JobFilter(), limit=3))
    await began.wait()
    listing.cancel()
    await asyncio.gather(listing, return_exceptions=True)
    closing = asyncio.create_task(store.close())
    done, _ = await asyncio.wait([closing], timeout=0.2)
    assert not done, "the list is still being read"
    goes_on.set()
    await closing
    assert len(read) == 3, "all rows were read from an open connection"


async def test_a_closed_store_reads_no_lists(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    await store.close()
    with pytest.raises(StoreUnavailable, match="the store is closed"):
        await store.list_jobs(JobFilter(), limit=1)
