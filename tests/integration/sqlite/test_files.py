"""Files that the SQLite store refuses and does not change."""

import os
import shutil
import sqlite3
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from job_tracker.domain.errors import StoreRefused, StoreUnavailable
from job_tracker.store.sqlite import SqliteStore
from job_tracker.store.sqlite.migrations import MIGRATIONS
from job_tracker.store.sqlite.schema import open_file
from tests.support.jobs import NOON, spec


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """Return the file of a closed store with one job."""
    path = tmp_path / "jobs.db"
    store = await SqliteStore.open(path)
    await store.submit(spec(), NOON, None, 10)
    await store.close()
    return path


async def refused(path: Path) -> str:
    before = path.read_bytes()
    with pytest.raises(StoreRefused) as raised:
        await SqliteStore.open(path)
    assert path.read_bytes() == before
    assert str(path) in str(raised.value)
    return str(raised.value)


async def test_a_file_of_a_newer_version_is_refused(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    assert "newer version" in await refused(file)


async def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    assert "another program" in await refused(path)


@pytest.mark.parametrize("where", [0, 4096, 3 * 4096 + 1])
async def test_a_damaged_file_is_refused(file: Path, where: int) -> None:
    content = bytearray(file.read_bytes())
    content[where : where + 200] = b"\xff" * 200
    file.write_bytes(content)
    said = await refused(file)
    assert "Its jobs were not changed" in said
    assert "Restore it from a backup" in said


async def test_a_file_on_a_full_disk_is_refused_with_the_advice_to_free_space(
    file: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(disk)], check=True)
    try:
        for beside in tmp_path.glob("jobs.db*"):
            shutil.copy(beside, disk)
        with (disk / "fill").open("wb", buffering=0) as fill, suppress(OSError):
            while True:
                fill.write(bytes(4096))
        said = await refused(disk / "jobs.db")
        assert (
            "The fault may be temporary: the disk is full; free some space; then start the service again"
            in said
        )
        assert "backup" not in said
        (disk / "fill").unlink()
        store = await SqliteStore.open(disk / "jobs.db")
        assert (await store.get(1)).id == 1
        await store.close()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_file_in_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="cannot be used as the job store"):
        open_file(tmp_path / "missing" / "jobs.db")


async def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_text("my notes, which are rather longer than the header of a database would be\n" * 20)
    await refused(path)


async def test_a_file_in_use_is_refused_until_it_is_free(file: Path) -> None:
    first = await SqliteStore.open(file)
    with pytest.raises(StoreRefused, match="another training service"):
        await SqliteStore.open(file)
    await first.close()
    await (await SqliteStore.open(file)).close()


async def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused, match="folder cannot be written"):
        await SqliteStore.open(tmp_path / "file" / "jobs.db")


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").touch()
    store = await SqliteStore.open(tmp_path / "jobs.db")
    assert (await store.submit(spec(), NOON, None, 10)).id == 1
    await store.close()


async def test_a_closed_store_is_unavailable(file: Path) -> None:
    store = await SqliteStore.open(file)
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.submit(spec(), NOON, None, 10)
    with pytest.raises(StoreUnavailable):
        await store.get(1)


@pytest.mark.parametrize("name", ["jobs.db", "jobs.db-wal", "jobs.db.lock"])
@pytest.mark.parametrize("dangles", [False, True])
async def test_a_file_that_is_a_link_is_refused(file: Path, tmp_path: Path, name: str, dangles: bool) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    target = tmp_path / ("nothing" if dangles else "jobs.db")
    (folder / name).symlink_to(target)
    before = file.read_bytes()
    with pytest.raises(StoreRefused, match=f"is a link to {target}"):
        await SqliteStore.open(folder / "jobs.db")
    assert file.read_bytes() == before
    assert [entry.name for entry in folder.iterdir()] == [name]
    assert not (tmp_path / "nothing").exists()


async def test_a_link_to_a_folder_shares_the_lock_of_the_folder(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    first = await SqliteStore.open(file)
    with pytest.raises(StoreRefused, match="another training service"):
        await SqliteStore.open(tmp_path / "link" / "jobs.db")
    await first.close()
