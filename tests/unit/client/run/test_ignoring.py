"""The files that git ignores are not uploaded."""

from pathlib import Path

import pytest

from training_service.client.errors import InvalidRequest
from training_service.client.run.working_tree import read_folder


def make(folder: Path, *names: str, **contents: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def sent(folder: Path) -> list[str]:
    return [file.path for file in read_folder(folder).files]


def test_rules_of_gitignore_hold_for_files_and_folders(tmp_path: Path) -> None:
    make(tmp_path, "train.py", "a.log", "keep.log", "data/x.bin", "src/data/x.bin", "build/out", "src/build")
    (tmp_path / ".gitignore").write_text("*.log\n!keep.log\n/data\nbuild/\n# a comment\n")
    assert sent(tmp_path) == [".gitignore", "keep.log", "src/build", "src/data/x.bin", "train.py"]


def test_rules_of_an_inner_folder_come_last(tmp_path: Path) -> None:
    make(tmp_path, "a.txt", "inner/a.txt", "inner/b.bin", "outer.bin")
    (tmp_path / ".gitignore").write_text("*.txt\n")
    (tmp_path / "inner" / ".gitignore").write_text("!a.txt\n*.bin\n")
    assert sent(tmp_path) == [".gitignore", "inner/.gitignore", "inner/a.txt", "outer.bin"]


def test_a_file_in_an_ignored_folder_stays_ignored(tmp_path: Path) -> None:
    make(tmp_path, "train.py", "data/keep.txt")
    (tmp_path / ".gitignore").write_text("data/\n!data/keep.txt\n")
    assert sent(tmp_path) == [".gitignore", "train.py"]


def test_rules_of_the_repository_hold_in_its_folders(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", "project/train.py", "project/weights.bin", "project/out/x")
    (tmp_path / ".gitignore").write_text("*.bin\n/project/out\n")
    assert sent(tmp_path / "project") == ["train.py"]


def test_folders_above_the_repository_have_no_say(tmp_path: Path) -> None:
    make(tmp_path, "repository/.git/HEAD", "repository/train.py", "alone/train.py")
    (tmp_path / ".gitignore").write_text("*.py\n")
    assert sent(tmp_path / "repository") == sent(tmp_path / "alone") == ["train.py"]


def test_git_caches_and_virtual_environments_never_go_along(tmp_path: Path) -> None:
    make(tmp_path, "train.py", ".git/HEAD", "src/__pycache__/a.pyc", "env/pyvenv.cfg", "env/bin/python")
    assert sent(tmp_path) == ["train.py"]


def test_an_unreadable_gitignore_is_an_error(tmp_path: Path) -> None:
    make(tmp_path, "train.py")
    (tmp_path / ".gitignore").mkdir()
    with pytest.raises(InvalidRequest, match="gitignore cannot be read"):
        sent(tmp_path)
