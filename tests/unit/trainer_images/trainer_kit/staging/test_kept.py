"""The folder of staged datasets stays below its size, and never loses one that is in use."""

import os
from pathlib import Path

import pytest
from trainer_kit.errors import DataError
from trainer_kit.staging.kept import Kept


def fill(kept: Kept, key: str, size: int, last_used: float = 1.0) -> Path:
    with kept.filling(key) as folder:
        (folder / "file").write_bytes(bytes(size))
    with kept.used(key) as folder:
        os.utime(folder, (last_used, last_used))
    return folder


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    kept = Kept(tmp_path, most_bytes=100)
    old, older = fill(kept, "old", 40, last_used=2), fill(kept, "older", 40, last_used=1)
    kept.make_room(60)
    assert (old.exists(), older.exists()) == (True, False)


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    kept = Kept(tmp_path, most_bytes=100)
    old, older = fill(kept, "old", 40, last_used=2), fill(kept, "older", 40, last_used=1)
    with kept.used("older"):
        kept.make_room(60)
        assert (old.exists(), older.exists()) == (False, True)
        with pytest.raises(DataError, match="40 bytes in use, and STAGING_GB allows 100: this dataset of 70"):
            kept.make_room(70)


def test_a_dataset_that_never_fits_removes_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path, most_bytes=100)
    old = fill(kept, "old", 40)
    with pytest.raises(DataError, match="the dataset has 101 bytes, but STAGING_GB allows 100"):
        kept.make_room(101)
    assert old.exists()


def test_what_a_killed_process_has_left_makes_room(tmp_path: Path) -> None:
    (left := tmp_path / "key.0badcafe.partial").mkdir()
    (left / "file").write_bytes(bytes(90))
    Kept(tmp_path, most_bytes=100).make_room(50)
    assert not left.exists()


def test_a_dataset_that_fails_while_it_is_filled_is_not_found(tmp_path: Path) -> None:
    kept = Kept(tmp_path, most_bytes=100)
    with pytest.raises(FileNotFoundError), kept.filling("key") as folder:
        (folder / "missing/file").touch()
    with kept.used("key") as folder:
        assert not folder.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["key.lock"]
