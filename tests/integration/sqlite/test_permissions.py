"""The store contains the secret of reports, so its files and folder are closed to other users."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from job_tracker.store.sqlite import SqliteStore
from tests.support.jobs import NOON, spec


@pytest.fixture(autouse=True)
def careless() -> Iterator[None]:
    """Set a umask that removes no rights."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}


async def used(path: Path) -> SqliteStore:
    store = await SqliteStore.open(path)
    await store.submit(spec(), NOON, None, 10)
    return store


PRIVATE = {
    "data": 0o700,
    "jobs.db": 0o600,
    "jobs.db-wal": 0o600,
    "jobs.db-shm": 0o600,
    "jobs.db.lock": 0o600,
    "jobs.db.mark": 0o600,
}


async def test_new_files_of_a_store_are_private(tmp_path: Path) -> None:
    store = await used(tmp_path / "data" / "jobs.db")
    assert modes(tmp_path / "data") == PRIVATE
    await store.close()


async def test_existing_files_become_private_also_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "data" / "jobs.db"
    killed = await used(path)
    left = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    await killed.close()
    for name, content in left.items():
        (path.parent / name).write_bytes(content)
        (path.parent / name).chmod(0o644)
    path.parent.chmod(0o755)
    store = await used(path)
    assert modes(path.parent) == PRIVATE
    assert (await store.get(2)).id == 2
    await store.close()


async def test_a_shared_folder_stays_unchanged_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    store = await used(folder / "jobs.db")
    assert folder.stat().st_mode & 0o7777 == 0o1777
    assert modes(folder)["jobs.db"] == 0o600
    await store.close()
    [said] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said.startswith(f"{folder} is open to other users (mode 1777)")
