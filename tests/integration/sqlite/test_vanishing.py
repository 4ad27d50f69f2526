"""An open store whose files are removed or replaced stops acknowledging, and says what is lost."""

import asyncio
import fcntl
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.domain.errors import StoreLost, StoreRefused, StoreUnavailable
from job_tracker.store.sqlite import SqliteStore, files
from job_tracker.tracking.leadership import Leadership, Tenure
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE

LOST = "lost with jobs.db"
SAVED = "have been saved in jobs.db"
SAFE = "are safe in jobs.db"


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "jobs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """Return a store with one job."""
    opened = await SqliteStore.open(path)
    await submit(opened)
    yield opened
    await opened.close()


async def submit(store: SqliteStore) -> int:
    return (await store.submit(spec(), NOON, None, 1000)).id


def wal_with_it(path: Path) -> None:
    path.unlink()
    files.wal_of(path).unlink()


def replaced(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


async def overwritten(path: Path) -> None:
    """Overwrite the database in place, as `cat other.db > jobs.db` does."""
    other = await SqliteStore.open(path.with_name("other") / "jobs.db")
    await other.close()
    path.write_bytes((path.with_name("other") / "jobs.db").read_bytes())


CUTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "database-emptied": (lambda path: os.truncate(path, 0), LOST),
    # Several pages are lost: a single page might also be in the log, written by the last commit.
    "database-cut": (lambda path: os.truncate(path, path.stat().st_size - 4 * 4096), LOST),
    "wal-emptied": (lambda path: os.truncate(files.wal_of(path), 0), "are lost with jobs.db-wal"),
    "wal-cut": (
        lambda path: os.truncate(files.wal_of(path), files.wal_of(path).stat().st_size - 1),
        "are lost with jobs.db-wal",
    ),
    "wal-overwritten": (
        lambda path: files.wal_of(path).write_bytes(os.urandom(1_000_000)),
        "are lost with jobs.db-wal",
    ),
}
WAYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "folder": (lambda path: shutil.rmtree(path.parent), LOST),
    "folder-moved": (lambda path: path.parent.rename(path.parent.with_name("elsewhere")), LOST),
    "database": (Path.unlink, LOST),
    "database-and-wal": (wal_with_it, LOST),
    "database-replaced": (replaced, LOST),
    "wal": (lambda path: files.wal_of(path).unlink(), SAVED),
    "wal-replaced": (lambda path: replaced(files.wal_of(path)), SAVED),
    "lock": (lambda path: files.lock_of(path).unlink(), SAFE),
    "lock-replaced": (lambda path: replaced(files.lock_of(path)), SAFE),
}


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_is_acknowledged_after_a_file_has_vanished(
    store: SqliteStore, path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    vanish, says = WAYS[way]
    vanish(path)
    for _ in range(2):
        with pytest.raises(StoreLost, match=says):
            await submit(store)
    critical = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(critical) == 1
    assert says in critical[0].getMessage()


@pytest.mark.parametrize("way", CUTS)
async def test_nothing_is_acknowledged_after_a_file_was_emptied_in_place(
    path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = await SqliteStore.open(path)
    for _ in range(300):  # enough for checkpoints, which make the database grow
        await submit(store)
    await store.close()
    store = await SqliteStore.open(path)
    await submit(store)
    cut, says = CUTS[way]
    cut(path)
    left = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreLost, match=says):
            await submit(store)
    await store.close()
    assert path.read_bytes() == left, "nothing may be moved out of such a log"
    critical = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(critical) == 1


async def test_an_overwritten_database_is_a_loss(path: Path) -> None:
    store = await SqliteStore.open(path)
    await submit(store)
    await overwritten(path)
    left = path.read_bytes()
    with pytest.raises(StoreLost, match=LOST):
        await submit(store)
    await store.close()
    assert path.read_bytes() == left, "nothing may be added to the file of another store"


async def test_a_checkpoint_by_another_process_is_not_a_loss(store: SqliteStore, path: Path) -> None:
    for mode in ("PASSIVE", "RESTART", "TRUNCATE"):
        script = (
            f"import sqlite3; print(sqlite3.connect({str(path)!r}).execute('PRAGMA wal_checkpoint({mode})'))"
        )
        subprocess.run([sys.executable, "-c", script], check=True)
        for _ in range(3):
            await submit(store)
    with closing(sqlite3.connect(path)) as other:
        other.execute("VACUUM")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert await submit(store) == 11


async def test_a_vacuum_by_another_process_is_not_a_loss_while_it_is_only_in_the_log(
    store: SqliteStore, path: Path
) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("VACUUM")
        assert await submit(store) == 2
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert await submit(store) == 3
    await overwritten(path)
    with pytest.raises(StoreLost, match=LOST):
        await submit(store)


async def test_a_database_that_shrinks_and_grows_again_is_not_a_loss(path: Path) -> None:
    store = await SqliteStore.open(path)
    await asyncio.gather(*(submit(store) for _ in range(500)))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("DELETE FROM jobs WHERE id > 20")
        other.execute("VACUUM")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    await asyncio.gather(*(submit(store) for _ in range(200)))
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StoreLost, match=LOST):
        await submit(store)
    await store.close()


@pytest.mark.parametrize("way", ["wal", "wal-replaced", "lock", "lock-replaced"])
@pytest.mark.parametrize("orderly", [True, False])
async def test_jobs_that_are_reported_as_safe_exist_afterwards(
    path: Path, tmp_path: Path, way: str, orderly: bool
) -> None:
    store = await SqliteStore.open(path)
    acknowledged = [await submit(store) for _ in range(20)]
    vanish, says = WAYS[way]
    vanish(path)
    with pytest.raises(StoreLost, match=says):
        await submit(store)
    if not orderly:  # the files as they would be after a kill now
        kept = shutil.copytree(path.parent, tmp_path / "kept", ignore=shutil.ignore_patterns("*-shm"))
        if way == "wal-replaced":
            files.wal_of(kept / "jobs.db").unlink()
        path = kept / "jobs.db"
    await store.close()
    again = await SqliteStore.open(path)
    assert [(await again.get(job_id)).id for job_id in acknowledged] == acknowledged
    await again.close()


async def test_a_store_acknowledges_nothing_while_its_files_cannot_be_checked(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Path) -> os.stat_result:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", fails)
        with pytest.raises(StoreUnavailable, match="cannot see its files"):
            await submit(store)
    assert await submit(store) == 2  # the refused write left nothing


async def test_leadership_ends_with_the_loss_of_the_store_even_without_writes(
    store: SqliteStore, path: Path
) -> None:
    leads: list[Tenure] = []

    async def track(tenure: Tenure) -> None:
        leads.append(tenure)
        shutil.rmtree(path.parent)
        await tenure.is_over(within=PATIENCE)

    with pytest.raises(StoreLost):
        await Leadership(store, track, holder="test", lifetime=timedelta(seconds=1)).run()
    assert len(leads) == 1


async def test_a_lock_file_that_is_removed_while_it_is_locked_is_locked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock = tmp_path / "jobs.db", fcntl.flock
    removed: list[Path] = []

    def slow(descriptor: int, operation: int) -> None:
        if not removed:
            removed.append(files.lock_of(path))
            removed[0].unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", slow)
    held = files.lock(path)
    with pytest.raises(StoreRefused, match="another training service"):
        files.lock(path)
    os.close(held)
    os.close(files.lock(path))
