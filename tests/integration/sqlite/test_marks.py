"""No id is given twice if the write-ahead log is lost, or meets another database, while no service runs."""

import logging
import shutil
from pathlib import Path

import pytest

from job_tracker.domain.errors import StoreRefused
from job_tracker.store.sqlite import SqliteStore, files
from tests.support.jobs import NOON, spec


async def submit(store: SqliteStore) -> int:
    return (await store.submit(spec(), NOON, None, 10_000)).id


async def killed(folder: Path, jobs: int) -> Path:
    """Return the store that a kill leaves after this number of jobs in each of two runs."""
    path = folder / "running" / "jobs.db"
    for _ in range(2):
        store = await SqliteStore.open(path)
        for _ in range(jobs):
            await submit(store)
        kept = folder / "killed"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(path.parent, kept)
        await store.close()
    files.index_of(kept / "jobs.db").unlink()
    return kept / "jobs.db"


def criticals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


async def test_ids_continue_without_a_gap_after_a_kill(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await SqliteStore.open(await killed(tmp_path, 3))
    assert await submit(store) == 7
    await store.close()
    assert criticals(caplog) == []


@pytest.mark.parametrize("jobs", [3, 1200])
@pytest.mark.parametrize("emptied", [False, True])
async def test_ids_of_a_lost_log_are_not_given_again(
    tmp_path: Path, jobs: int, emptied: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = await killed(tmp_path, jobs)
    if emptied:
        files.wal_of(path).write_bytes(b"")
    else:
        files.wal_of(path).unlink()
    store = await SqliteStore.open(path)
    first = await submit(store)
    assert first > 2 * jobs
    [said] = criticals(caplog)
    assert f"to {first - 1} may have been acknowledged" in said
    await store.close()
    again = await SqliteStore.open(path)
    assert await submit(again) == first + 1
    await again.close()
    assert len(criticals(caplog)) == 1


async def test_an_older_copy_of_a_closed_store_skips_the_ids_given_since(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, copy = tmp_path / "jobs.db", tmp_path / "copy"
    for _ in range(2):
        shutil.copy(path, copy) if path.exists() else None
        store = await SqliteStore.open(path)
        last = await submit(store)
        await store.close()
    shutil.copy(copy, path)
    store = await SqliteStore.open(path)
    assert await submit(store) == last + 1
    await store.close()
    assert f"jobs {last} to {last} may" in criticals(caplog)[0]


async def test_another_database_beside_a_log_is_refused_untouched(tmp_path: Path) -> None:
    path = await killed(tmp_path, 3)
    other = await SqliteStore.open(tmp_path / "other" / "jobs.db")
    await submit(other)
    await other.close()
    ours = path.rename(path.with_name("ours"))
    shutil.copy(tmp_path / "other" / "jobs.db", path)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(StoreRefused, match="is not the database that"):
        await SqliteStore.open(path)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
    ours.rename(path)
    store = await SqliteStore.open(path)
    assert await submit(store) == 7
    await store.close()


async def test_a_store_of_an_older_version_gets_a_mark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = await killed(tmp_path, 3)
    files.mark_of(path).unlink()
    store = await SqliteStore.open(path)
    assert files.mark_of(path).exists()
    assert await submit(store) == 7
    await store.close()
    assert criticals(caplog) == []


async def test_a_damaged_mark_is_refused(tmp_path: Path) -> None:
    path = await killed(tmp_path, 1)
    files.mark_of(path).write_text("{}")
    with pytest.raises(StoreRefused, match=r"jobs\.db\.mark: is damaged"):
        await SqliteStore.open(path)
