"""Restores from a backup: ids are not reused even after a second one, and the service can open the files."""

import os
from pathlib import Path

import pytest

from job_tracker.domain import naming
from job_tracker.domain.errors import StoreRefused
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.restoring import SKIPPED_IDS
from tests.support.catalog import SETTINGS
from tests.support.jobs import NOON, spec
from training_service.backups import back_up, restore
from training_service.settings import Settings


async def given(data_dir: Path) -> int:
    """Return the next id that a service on this folder gives."""
    store = await SqliteStore.open(data_dir / "jobs.db")
    try:
        home = naming.home("default", await store.store_id())
        return (await store.submit(spec({}, home=home), NOON, None, 100)).id
    finally:
        await store.close()


def settings_of(data_dir: Path) -> Settings:
    data_dir.mkdir()
    made: Settings = SETTINGS.model_validate({"storage": {"data_dir": data_dir}, "backend": "fake"})
    return made


async def test_a_backup_that_is_restored_again_gives_no_id_twice(tmp_path: Path) -> None:
    data_dir, backup = tmp_path / "data", tmp_path / "backup.db"
    settings = settings_of(data_dir)
    ids = [await given(data_dir)]
    back_up(settings, backup)
    for _ in range(2):
        await restore(settings, backup)
        ids += [await given(data_dir), await given(data_dir)]
    assert ids == sorted(set(ids))
    (data_dir / "jobs.db").unlink()  # the replaced stores still exist
    await restore(settings, backup)
    assert await given(data_dir) > max(ids)


async def test_the_ids_of_another_store_do_not_count(tmp_path: Path) -> None:
    data_dir, other = tmp_path / "data", tmp_path / "other"
    settings, of_other = settings_of(data_dir), settings_of(other)
    for folder in (data_dir, data_dir, data_dir, other):
        await given(folder)
    back_up(of_other, tmp_path / "backup.db")
    await restore(settings, tmp_path / "backup.db")
    assert await given(data_dir) == 1 + SKIPPED_IDS + 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a folder of another user")
async def test_root_restores_no_files_into_the_folder_of_another_user(tmp_path: Path) -> None:
    data_dir, backup = tmp_path / "data", tmp_path / "backup.db"
    settings = settings_of(data_dir)
    await given(data_dir)
    back_up(settings, backup)
    before = {file: file.read_bytes() for file in data_dir.iterdir()}
    os.chown(data_dir, 65_534, -1)
    with pytest.raises(StoreRefused, match="Run this command as that user"):
        await restore(settings, backup)
    assert {file: file.read_bytes() for file in data_dir.iterdir()} == before
