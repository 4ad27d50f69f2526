"""The commit of a folder, and its uncommitted changes."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from training_service.client.run import repository
from training_service.client.run.repository import Revision, revision_of
from training_service.client.run.working_tree import read_folder


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=ada", "-c", "user.email=ada@example.com")
    command = ("git", "-C", str(folder), *identity, *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "more")
    return git(folder, "rev-parse", "HEAD")


def revision(folder: Path) -> Revision:
    return revision_of(read_folder(folder))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let git take long, as it does on a busy machine."""
    monkeypatch.setattr(repository, "_SECONDS", PATIENCE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with one commit."""
    made = tmp_path / "project"
    made.mkdir()
    (made / "train.py").write_text("one\ntwo\nthree\n")
    git(made, "init", "--quiet")
    commit(made)
    return made


def test_a_folder_without_git_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    assert revision(tmp_path) == Revision()


def test_a_repository_without_a_commit_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    git(tmp_path, "init", "--quiet")
    assert revision(tmp_path) == Revision()


def test_the_version_is_the_commit(folder: Path) -> None:
    assert revision(folder) == Revision(git(folder, "rev-parse", "HEAD"))


def test_changes_since_the_commit_are_recorded_and_can_be_applied(folder: Path, tmp_path: Path) -> None:
    (folder / "train.py").write_text("one\n2\nthree\nfour\n")
    found = revision(folder)
    head = git(folder, "rev-parse", "HEAD")
    assert found.version == f"{head}-dirty"
    assert found.changes.startswith(f"# Changes since commit {head}\n".encode())
    assert found.lines == (2, 1)
    (tmp_path / "changes.diff").write_bytes(found.changes)
    git(folder, "checkout", "--quiet", "train.py")
    git(folder, "apply", str(tmp_path / "changes.diff"))
    assert (folder / "train.py").read_text() == "one\n2\nthree\nfour\n"


def test_staged_and_removed_files_are_part_of_the_changes(folder: Path) -> None:
    (folder / "new.py").write_text("new\n")
    git(folder, "add", "new.py")
    (folder / "train.py").unlink()
    assert revision(folder).lines == (1, 3)


def test_lines_that_look_like_heads_are_counted(folder: Path) -> None:
    (folder / "train.py").write_text("one\n++ more\ndiff --git a b\nthree\n-- less\n")
    assert revision(folder).lines == (3, 1)


def test_only_changes_of_the_folder_that_is_sent_are_recorded(folder: Path) -> None:
    (folder / "part").mkdir()
    (folder / "part" / "a.py").write_text("a\n")
    head = commit(folder)
    (folder / "train.py").write_text("other\n")
    assert revision(folder / "part") == Revision(head)
    (folder / "part" / "a.py").write_text("b\n")
    found = revision(folder / "part").changes
    assert b"+++ b/a.py\n" in found
    assert b"train.py" not in found


def test_what_git_ignores_is_never_recorded_even_if_it_is_tracked(folder: Path) -> None:
    for name in ("secret.env", "removed.env"):
        (folder / name).write_text("KEY=old\n")
    (folder / "private").mkdir()
    (folder / "private" / "key").write_text("old\n")
    commit(folder)
    (folder / ".gitignore").write_text("*.env\nprivate/\n")
    commit(folder)
    (folder / "secret.env").write_text("KEY=new\n")
    (folder / "removed.env").unlink()
    (folder / "private" / "key").unlink()
    (folder / "train.py").write_text("changed\n")
    found = revision(folder).changes
    assert b"+changed" in found
    assert b"KEY" not in found
    assert b"key" not in found


def test_binary_files_are_named_only(folder: Path) -> None:
    (folder / "weights").write_bytes(b"\0old")
    commit(folder)
    (folder / "weights").write_bytes(b"\0new")
    found = revision(folder).changes
    assert b"Binary files a/weights and b/weights differ" in found
    assert b"new" not in found


def test_long_changes_are_cut_at_a_line_and_say_so(folder: Path) -> None:
    (folder / "train.py").write_text("".join(f"line {number}\n" for number in range(200_000)))
    found = revision(folder).changes
    assert len(found) <= repository.MOST_CHANGES
    *_, last, note = found.splitlines()
    assert last.startswith(b"+line ")
    assert note == b"# The rest is not recorded: at most 1048576 bytes are."


@pytest.mark.parametrize(
    "setting", ["filter.x=y.clean", "filter.own.clean", "filter.own.process", "diff.own.command"]
)
def test_programs_of_the_repository_are_never_run(folder: Path, tmp_path: Path, setting: str) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    driver = setting.partition(".")[2].rpartition(".")[0]
    (folder / ".gitattributes").write_text(f"* filter={driver} diff={driver}\n")
    commit(folder)
    for name in (setting, "core.fsmonitor", "diff.external", f"diff.{driver}.textconv", "core.pager"):
        git(folder, "config", name, str(program))
    git(folder, "config", f"filter.{driver}.required", "true")
    (folder / "train.py").write_text("changed\n")
    subprocess.run(
        ["git", "-C", str(folder), "diff"],
        check=False,
        capture_output=True,
        env={**os.environ, "GIT_PAGER_IN_USE": "1"},
    )
    assert ran.exists(), "without our options, git runs the program"
    ran.unlink()
    found = revision(folder)
    assert not ran.exists()
    assert "=" in driver or b"+changed" in found.changes


def test_a_git_that_hangs_is_ended(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nsleep 600\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(repository, "_SECONDS", 0.2)
    assert revision(folder) == Revision()


def test_variables_that_name_another_repository_do_not_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = revision(folder)
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert revision(folder) == expected
