"""Equal requirements share an environment, unless they may name other files. A part of one is never used."""

import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from job_tracker.backends.process import requirements_runner
from job_tracker.backends.process.environments import find_uv
from job_tracker.backends.process.requirements_runner import EXIT_CODE, FAILED, is_plain, name_of

TREE, OTHER = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    "line",
    [
        "numpy",
        "numpy==2.1",
        "a-b[x, y]>=1,<2 ; python_version < '3.12'",
        "# ./x",
        "torch  # of ours",
        "",
        "a~=1.0",
    ],
)
def test_plain_requirements_are_the_same_in_every_tree(line: str) -> None:
    content = f"six\n{line}\n".encode()
    assert is_plain(content)
    assert name_of(content, TREE) == name_of(content, OTHER)


@pytest.mark.parametrize(
    "line",
    [
        "-r other.txt",
        "-c limits.txt",
        "-e .",
        ".",
        "./pkg",
        "pkg/",
        "a @ file:x",
        "--find-links=wheels",
        "a\\",
        "x.whl/",
    ],
)
def test_requirements_that_may_name_files_belong_to_their_tree(line: str) -> None:
    content = f"six\n{line}\n".encode()
    assert not is_plain(content)
    assert name_of(content, TREE) != name_of(content, OTHER)


class Folder:
    """A folder with an empty requirements file, and a uv that runs a shell command around each call."""

    def __init__(self, folder: Path) -> None:
        self.root, self._uv, self._work = folder / "environments", folder / "uv", folder / "work"
        self._work.mkdir()
        (self._work / "requirements.txt").write_text("# none\n")
        self.let_uv()

    def let_uv(self, before: str = ":", after: str = ":") -> None:
        self._uv.write_text(f'#!/bin/sh\n{before}\n{find_uv()} "$@" || exit\n{after}\n')
        self._uv.chmod(0o700)

    def run(self, prepare: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
        script = requirements_runner.__file__
        words = (str(self.root), str(self._uv), "requirements.txt", TREE)
        command = ("python", "-c", "import sys; print(sys.prefix)")
        return subprocess.run(
            (sys.executable, "-I", "-S", script, *words, *command),
            cwd=self._work,
            capture_output=True,
            text=True,
            preexec_fn=prepare,
        )

    def complete(self) -> list[Path]:
        return [path.parent for path in self.root.glob("*/complete")]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


KILL = "kill -9 $PPID"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[ $1 != venv ] || " + KILL, ":"),
        (":", "[ $1 != venv ] || " + KILL),
        ("[ $1 != pip ] || " + KILL, ":"),
        (":", "[ $1 != pip ] || " + KILL),
    ],
)
def test_an_environment_whose_builder_was_killed_is_built_again(
    folder: Folder, before: str, after: str
) -> None:
    folder.let_uv(before, after)
    assert folder.run().returncode == -signal.SIGKILL
    assert folder.complete() == []
    folder.let_uv()
    ended = folder.run()
    [made] = folder.complete()
    assert (ended.returncode, ended.stdout) == (0, f"{made}\n")
    assert "installing the packages" in ended.stderr


def test_a_disk_without_room_ends_the_job_with_the_reason(folder: Folder) -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    only_the_mark_remains = 'for last; do :; done; [ $1 = pip ] || mkdir "$last"; exit 0'
    folder.let_uv(before=only_the_mark_remains)
    ended = folder.run(no_room)
    assert (ended.returncode, ended.stdout) == (EXIT_CODE, "")
    assert f"{FAILED}: the environment cannot be written: [Errno 27] File too large" in ended.stderr
    folder.let_uv()
    ended = folder.run()
    assert ended.stdout == f"{folder.complete()[0]}\n"
