"""The folder of staged datasets stays below its size, and never loses one that is in use."""

import os
from contextlib import ExitStack
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
    kept.make_room(60, "new")
    assert (old.exists(), older.exists()) == (True, False)


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    kept = Kept(tmp_path, most_bytes=100)
    old, older = fill(kept, "old", 40, last_used=2), fill(kept, "older", 40, last_used=1)
    with kept.used("older"):
        kept.make_room(60, "new")
        assert (old.exists(), older.exists()) == (False, True)
        with pytest.raises(DataError, match="40 bytes in use, and STAGING_GB allows 100: this dataset of 70"):
            kept.make_room(70, "new")


def test_a_dataset_that_never_fits_removes_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path, most_bytes=100)
    old = fill(kept, "old", 40)
    with pytest.raises(DataError, match="the dataset has 101 bytes, but STAGING_GB allows 100"):
        kept.make_room(101, "new")
    assert old.exists()


@pytest.mark.parametrize("key", ["same", "other"])
def test_what_a_killed_process_has_left_makes_room(tmp_path: Path, key: str) -> None:
    kept = Kept(tmp_path, most_bytes=100)
    (left := kept.folder / "same.0badcafe.partial").mkdir()
    (left / "file").write_bytes(bytes(90))
    with kept.used(key):
        kept.make_room(50, key)
    assert not left.exists()


def test_what_others_bring_of_the_same_dataset_does_not_count(tmp_path: Path) -> None:
    kept = Kept(tmp_path, most_bytes=100)
    with ExitStack() as filling:
        for key in ("same", "same", "other"):
            (filling.enter_context(kept.filling(key)) / "file").write_bytes(bytes(40))
        kept.make_room(60, "same")
        with pytest.raises(DataError, match="this dataset of 60 does not fit"):
            kept.make_room(60, "new")
    assert sorted(path.name for path in kept.folder.iterdir()) == ["other", "same"]


def test_other_files_of_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/one").write_bytes(bytes(1000))
    Kept(tmp_path, most_bytes=100).make_room(100, "new")
    assert (tmp_path / "photos/one").exists()


def test_a_dataset_that_fails_while_it_is_filled_is_not_found(tmp_path: Path) -> None:
    kept = Kept(tmp_path, most_bytes=100)
    with pytest.raises(FileNotFoundError), kept.filling("key") as folder:
        (folder / "missing/file").touch()
    with kept.used("key") as folder:
        assert not folder.exists()
    assert [path.name for path in kept.folder.iterdir()] == ["key.lock"]


def test_a_dataset_that_another_process_has_filled_stays(tmp_path: Path) -> None:
    kept = Kept(tmp_path, most_bytes=100)
    with kept.filling("key") as late:
        (late / "late").touch()
        fill(kept, "key", 40)
    with kept.used("key") as folder:
        assert [path.name for path in folder.iterdir()] == ["file"]
