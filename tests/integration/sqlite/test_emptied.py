"""An empty job store beside folders of jobs that are not in it."""

import shutil
from pathlib import Path

import pytest

from job_tracker.domain.errors import StoreRefused
from job_tracker.domain.job import Ending, JobState
from job_tracker.store.base import Store
from job_tracker.store.sqlite import SqliteStore
from job_tracker.store.sqlite.files import wal_of
from tests.support.catalog import SETTINGS
from tests.support.jobs import NOON, spec
from training_service.settings import Settings
from training_service.store_opening import open_store

USED = [
    "groups/live/1a2b3c4d.program-1",
    "groups/kept/program-1",
    "groups/ended/program-1",
    "logs/program-1.1.1",
    "storage/models/a-model",
    "storage/checkpoints/1",
    "storage/logs/default",
]


def settings(folder: Path, **storage: object) -> Settings:
    made: Settings = SETTINGS.model_validate({"storage": {"data_dir": folder, **storage}})
    return made


async def opened(folder: Path, **storage: object) -> Store:
    return await open_store(settings(folder, **storage))


async def with_a_job(folder: Path) -> str:
    """Make a store that has had a job; return its id."""
    store = await opened(folder)
    await store.submit(spec(), NOON, None, 10)
    store_id = await store.store_id()
    await store.close()
    return store_id


@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("empty", ["missing", "no bytes", "no jobs"])
async def test_an_empty_store_beside_used_folders_is_refused_untouched(
    tmp_path: Path, used: str, empty: str
) -> None:
    file = tmp_path / "jobs.db"
    if empty == "no bytes":
        file.touch()
    elif empty == "no jobs":
        await (await opened(tmp_path)).close()
    before = file.read_bytes() if file.exists() else None
    (tmp_path / used).mkdir(parents=True)
    with pytest.raises(StoreRefused) as raised:
        await opened(tmp_path)
    said = str(raised.value)
    assert str((tmp_path / used).parent) in said
    assert all(remedy in said for remedy in ("from a backup", "move these folders away", "start_anew=true"))
    assert (file.read_bytes() if file.exists() else None) == before


async def test_an_empty_store_is_accepted_with_start_anew(tmp_path: Path) -> None:
    (tmp_path / USED[0]).mkdir(parents=True)
    store = await opened(tmp_path, start_anew=True)
    assert (await store.submit(spec(), NOON, None, 10)).id == 1
    await store.close()
    await (await opened(tmp_path)).close()
    assert (tmp_path / USED[0]).is_dir()


async def test_folders_of_datasets_do_not_count_as_used(tmp_path: Path) -> None:
    (tmp_path / "storage" / "versionedDatasets" / "1" / "v1").mkdir(parents=True)
    await (await opened(tmp_path)).close()


async def test_empty_folders_and_storage_elsewhere_do_not_count_as_used(tmp_path: Path) -> None:
    (tmp_path / "shared" / "models" / "a-model").mkdir(parents=True)
    (tmp_path / "data" / "groups" / "live").mkdir(parents=True)
    await (await opened(tmp_path / "data", uri=str(tmp_path / "shared"))).close()


@pytest.mark.parametrize("uri", ["{}/mine", "file://{}/mine"])
async def test_configured_storage_in_the_data_folder_counts_as_used(tmp_path: Path, uri: str) -> None:
    (tmp_path / "mine" / "models" / "a-model").mkdir(parents=True)
    with pytest.raises(StoreRefused, match="mine/models"):
        await opened(tmp_path, uri=uri.format(tmp_path))


async def test_a_store_whose_jobs_were_all_pruned_is_not_empty(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    job = await store.submit(spec(), NOON, None, 10)
    await store.update(job.ended(Ending(JobState.CANCELLED, NOON), NOON))
    await store.delete([job.id])
    await store.close()
    (tmp_path / USED[0]).mkdir(parents=True)
    await (await opened(tmp_path)).close()


async def test_a_store_that_was_moved_away_and_back_is_the_same(tmp_path: Path) -> None:
    store_id = await with_a_job(tmp_path)
    (tmp_path / USED[0]).mkdir(parents=True)
    shutil.move(tmp_path / "jobs.db", tmp_path / "away.db")
    with pytest.raises(StoreRefused, match="does not exist"):
        await opened(tmp_path)
    shutil.move(tmp_path / "away.db", tmp_path / "jobs.db")
    store = await opened(tmp_path)
    assert await store.store_id() == store_id
    await store.close()


async def test_a_log_of_writes_without_its_database_is_refused_untouched(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "first" / "jobs.db")
    await store.submit(spec(), NOON, None, 10)
    (tmp_path / "second").mkdir()
    wal = wal_of(tmp_path / "second" / "jobs.db")
    shutil.copy(wal_of(tmp_path / "first" / "jobs.db"), wal)
    await store.close()
    before = wal.read_bytes()
    with pytest.raises(StoreRefused, match=r"jobs\.db-wal still exists"):
        await opened(tmp_path / "second", start_anew=True)
    assert wal.read_bytes() == before
    assert not (tmp_path / "second" / "jobs.db").exists()
