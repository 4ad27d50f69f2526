"""Checks of datasets in a storage that hangs do not delay other checks."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from job_tracker.admission.dataset_versions import DatasetVersions
from job_tracker.catalog import Dataset, FixedCatalog
from job_tracker.common.turns import FairTurns
from job_tracker.domain.errors import StorageUnavailable, UnknownReference
from tests.support.callers import caller_at
from tests.support.patience import PATIENCE


class Hanging(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A storage that answers once `let_go` is set."""

    protocol = "hanging"
    let_go = threading.Event()

    def exists(self, path: str, **kwargs: Any) -> bool:
        self.let_go.wait()
        return True


@pytest.fixture
def datasets(storage: Path) -> Iterator[dict[str, Dataset]]:
    fsspec.register_implementation("hanging", Hanging, clobber=True)
    Hanging.let_go.clear()
    yield {
        "1": Dataset(uri=f"{storage}/versionedDatasets/{{dataset_id}}/{{version}}"),
        "hanging": Dataset(uri="hanging://{version}"),
    }
    Hanging.let_go.set()


async def uri_for(versions: DatasetVersions, who: str, dataset: str, version: str) -> str:
    """Return the answer to a call of this caller."""
    uri, _ = await versions.uri_of(caller_at(who), dataset, version)
    return uri


async def test_a_caller_with_many_checks_leaves_a_turn_to_others(datasets: dict[str, Dataset]) -> None:
    versions = DatasetVersions(FixedCatalog({}, datasets), patience=PATIENCE, turns=FairTurns(4, 3))
    async with asyncio.TaskGroup() as calls:
        for number in range(20):
            calls.create_task(uri_for(versions, "a", "hanging", f"v{number}"))
        await asyncio.sleep(0)  # each call has begun
        found = await calls.create_task(uri_for(versions, "b", "1", "v1"))
        assert found.endswith("/versionedDatasets/1/v1")
        Hanging.let_go.set()


async def test_a_check_without_a_turn_times_out_and_leaves_nothing(datasets: dict[str, Dataset]) -> None:
    turns = FairTurns(1, 1)
    versions = DatasetVersions(FixedCatalog({}, datasets), patience=0.2, turns=turns)
    for version in ("v1", "v1", "v2"):
        with pytest.raises(StorageUnavailable, match=r"cannot be checked: no answer in 0\.2 s"):
            await uri_for(versions, "a", "hanging", version)
    with pytest.raises(StorageUnavailable, match="1 other checks are running or waiting"):
        await uri_for(versions, "b", "1", "v1")
    Hanging.let_go.set()
    async with asyncio.timeout(PATIENCE):
        while turns.length:
            await asyncio.sleep(0.01)


async def test_calls_for_the_same_version_share_a_check(datasets: dict[str, Dataset]) -> None:
    turns = FairTurns(1, 1)
    versions = DatasetVersions(FixedCatalog({}, datasets), patience=PATIENCE, turns=turns)
    await turns.take("another")
    async with asyncio.TaskGroup() as calls:
        for who in "abcab":
            calls.create_task(uri_for(versions, who, "hanging", "v1"))
        await asyncio.sleep(0)
        turns.give("another")
        Hanging.let_go.set()
    async with asyncio.timeout(PATIENCE):
        while turns.length:
            await asyncio.sleep(0.01)


def write_version(folder: Path, *names: str) -> None:
    """Write complete versions of a dataset."""
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "examples.csv").touch()


@pytest.mark.parametrize("end", ["", "/data"])
async def test_an_unknown_version_names_the_nearest_complete_ones_and_how_to_add_one(
    tmp_path: Path, end: str
) -> None:
    write_version(
        tmp_path / "1", *(f"{name}{end}" for name in ("2026-05-01", "2026-05-02", "v1", "v2", "x", "y"))
    )
    (tmp_path / "1" / "2026-05-04").mkdir()
    write_version(tmp_path / "2", f"2026-05-05{end}")
    dataset = Dataset(uri=f"{tmp_path}/{{dataset_id}}/{{version}}{end}", files=("examples.csv",))
    versions = DatasetVersions(FixedCatalog({}, {"1": dataset}), patience=PATIENCE)
    with pytest.raises(UnknownReference) as caught:
        await uri_for(versions, "a", "1", "2026-05-03")
    start = "train_data_version_hash: version '2026-05-03' of dataset '1' doesn't exist: there is no "
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith(
        "/2026-05-03"
        + end
        + "/examples.csv; complete versions: 2026-05-02, 2026-05-01, v1, v2, x; to add the missing version, "
        "write its files to its folder"
    )


@pytest.mark.parametrize("uri", ["{dataset_id}-{version}", "none/{dataset_id}/{version}", "{version!s}/"])
async def test_versions_that_cannot_be_listed_are_none(tmp_path: Path, uri: str) -> None:
    write_version(tmp_path, "1-v1")
    versions = DatasetVersions(FixedCatalog({}, {"1": Dataset(uri=f"{tmp_path}/{uri}")}), patience=PATIENCE)
    with pytest.raises(UnknownReference, match="complete versions: none was found"):
        await uri_for(versions, "a", "1", "v2")


async def test_datasets_with_one_folder_are_checked_for_their_own_files(storage: Path) -> None:
    folder = f"{storage}/versionedDatasets/1/{{version}}"
    some, more = Dataset(uri=folder), Dataset(uri=folder, files=("examples.csv", "more.csv"))
    versions = DatasetVersions(FixedCatalog({}, {"some": some, "more": more}), patience=PATIENCE)
    found = await uri_for(versions, "a", "some", "v1")
    with pytest.raises(UnknownReference, match=r"there is no .*more\.csv"):
        await uri_for(versions, "a", "more", "v1")
    assert found.endswith("/versionedDatasets/1/v1")
