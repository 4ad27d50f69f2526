"""Real groups stage a dataset in each way."""

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from trainer_kit.errors import DataError, StorageError
from trainer_kit.group import Group
from trainer_kit.staging import staged
from trainer_kit.staging.peers import Peers
from trainer_kit.staging.pieces import File, Source
from trainer_kit.staging.settings import Settings
from trainer_kit.staging.ways import Way

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import outcome_of
from tests.support.trainers.launcher import Launcher
from tests.support.trainers.programs import staging as program
from tests.support.trainers.programs.staging import SIZE, WAYS, Reports

SIZES = [2, 3, 5]
FILES = {"empty": 0, "a/one": 1, "a/b/many": 5 * SIZE + 3, "small": 20, "whole": 2 * SIZE}
TOTAL = sum(FILES.values())
ALONE = Group(0, 1, torch.device("cpu"))

Outcomes = dict[int, list[dict[str, Any]]]


def write_dataset(folder: Path) -> dict[str, str]:
    dice = random.Random(1)
    hashes = {}
    for name, size in FILES.items():
        (path := folder / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content := dice.randbytes(size))
        hashes[name] = hashlib.sha256(content).hexdigest()
    return hashes


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, forks: Sequence[ForkServer]) -> Outcomes:
    found = {}
    for size in SIZES:
        home = tmp_path_factory.mktemp("staging")
        write_dataset(home / "dataset")
        with Launcher(home, forks=forks) as launcher:
            [found[size]] = outcome_of(launcher, program.__name__, size)
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", SIZES)
def test_every_rank_has_the_files_of_the_dataset(
    outcomes: Outcomes, size: int, way: Way, tmp_path: Path
) -> None:
    expected = write_dataset(tmp_path)
    assert [rank[way]["files"] for rank in outcomes[size]] == [expected] * size


@pytest.mark.parametrize("size", SIZES)
def test_storage_is_read_once_and_not_once_for_each_rank(outcomes: Outcomes, size: int) -> None:
    for rank in outcomes[size]:
        assert rank["direct"]["staging_read_bytes"] == size * TOTAL
        assert {rank[way]["staging_read_bytes"] for way in ("broadcast", "relay", "shards")} == {TOTAL}


@pytest.mark.parametrize("size", SIZES)
def test_the_busiest_rank_sends_what_the_formula_says(outcomes: Outcomes, size: int) -> None:
    sent = {way: outcomes[size][0][way]["staging_sent_bytes"] for way in WAYS}
    assert sent[Way.DIRECT] == 0
    assert sent[Way.BROADCAST] == (size - 1).bit_length() * TOTAL
    assert sent[Way.RELAY] == TOTAL
    # All pieces but every n-th, which the next rank has read.
    assert abs(sent[Way.SHARDS] - (size - 1) / size * TOTAL) <= SIZE


@pytest.mark.parametrize("size", SIZES)
def test_what_is_kept_is_not_read_again(outcomes: Outcomes, size: int, tmp_path: Path) -> None:
    for rank in outcomes[size]:
        first, second = rank["kept"]
        assert first["files"] == second["files"] == write_dataset(tmp_path)
        assert (first["staging_read_bytes"], second["staging_read_bytes"]) == (TOTAL, 0)


@pytest.mark.parametrize("size", SIZES)
def test_all_ranks_end_if_the_files_of_one_differ(outcomes: Outcomes, size: int) -> None:
    assert len({rank["differing"] for rank in outcomes[size]}) == 1
    assert outcomes[size][0]["differing"].startswith(
        "the staged files of the ranks 1 differ from those of rank 0"
    )


def test_a_dataset_that_differs_from_its_hashes_is_refused(tmp_path: Path) -> None:
    hashes = write_dataset(tmp_path / "data")
    (tmp_path / "data/SHA256SUMS").write_text("".join(f"{each}  {name}\n" for name, each in hashes.items()))
    with staged(ALONE, str(tmp_path / "data"), Reports(), Settings(Way.DIRECT)) as folder:
        assert (Path(folder) / "small").stat().st_size == 20
    (tmp_path / "data/small").write_bytes(bytes(20))
    with (
        pytest.raises(DataError, match=r"data/small is damaged: its SHA-256 is .*, but SHA256SUMS has "),
        staged(ALONE, str(tmp_path / "data"), Reports(), Settings(Way.DIRECT)),
    ):
        pytest.fail("it was staged")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no hash", "line 1: expected a SHA-256 and a name"),
        (f"{'0' * 64}  ../../etc/passwd", "line 1: '../../etc/passwd' is not in the dataset"),
    ],
)
def test_a_malformed_list_of_hashes_is_refused(tmp_path: Path, line: str, message: str) -> None:
    write_dataset(tmp_path)
    (tmp_path / "SHA256SUMS").write_text(f"{line}\n")
    with (
        pytest.raises(DataError, match=message),
        staged(ALONE, str(tmp_path), Reports(), Settings(Way.DIRECT)),
    ):
        pytest.fail("it was staged")


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match="has no files: is it the folder of the dataset's version"),
        staged(ALONE, str(tmp_path), Reports(), Settings(Way.SHARDS)),
    ):
        pytest.fail("it was staged")


def test_a_kept_file_that_is_damaged_is_staged_again(tmp_path: Path) -> None:
    expected = write_dataset(tmp_path / "data")
    settings = Settings(Way.SHARDS, tmp_path / "kept", 100_000)

    def staged_small() -> tuple[str, float]:
        reports = Reports()
        with staged(ALONE, str(tmp_path / "data"), reports, settings) as folder:
            path = Path(folder) / "small"
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            path.write_bytes(bytes(20))
        return digest, reports.metrics["staging_read_bytes"]

    assert [staged_small(), staged_small()] == [(expected["small"], TOTAL)] * 2


def test_a_job_that_stages_again_leaves_a_good_copy_to_its_readers(tmp_path: Path) -> None:
    """As if another machine of the group lacked the dataset."""
    write_dataset(tmp_path / "data")
    settings = Settings(Way.SHARDS, tmp_path / "kept", 100_000)
    with staged(ALONE, str(tmp_path / "data"), Reports(), settings) as first:
        inode = (Path(first) / "small").stat().st_ino
        lacking = mock.patch.object(Peers, "of_each", lambda _, own: [own, bytes(len(own))])
        with lacking, pytest.raises(DataError, match="ranks 1 differ"):
            staged(ALONE, str(tmp_path / "data"), Reports(), settings).__enter__()
        assert (Path(first) / "small").stat().st_ino == inode


def test_files_that_cannot_be_made_are_named(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data")
    both = [File("a", 1), File("a/b", 1)]
    with (
        mock.patch.object(Source, "files", return_value=both),
        pytest.raises(StorageError, match=r"cannot make .*/a/b"),
        staged(ALONE, str(tmp_path / "data"), Reports(), Settings(Way.DIRECT)),
    ):
        pytest.fail("it was staged")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data")
    (tmp_path / "file").touch()
    with (
        pytest.raises(StorageError, match=f"STAGING_FOLDER: cannot make {tmp_path}/file/kept/"),
        staged(ALONE, str(tmp_path / "data"), Reports(), Settings(Way.SHARDS, tmp_path / "file/kept")),
    ):
        pytest.fail("it was staged")


def test_without_staging_the_program_gets_the_uri() -> None:
    reports = Reports()
    with staged(ALONE, "s3://bucket/data", reports, Settings()) as folder:
        assert folder == "s3://bucket/data"
    assert reports.metrics == {}
