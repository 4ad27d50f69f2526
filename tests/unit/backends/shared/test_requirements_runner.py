"""Equal requirements share an environment, unless they may name other files. An environment is used only if
it is complete.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.process.environments import find_uv
from job_tracker.backends.shared import requirements_runner
from job_tracker.backends.shared.requirements_runner import EXIT_CODE, FAILED, is_pinned, is_plain, name_of
from tests.support import tiny_wheel

TEXT = Path(requirements_runner.__file__).read_text()
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

    def require(self, *lines: str) -> None:
        tiny_wheel.write(self._work / "wheels")
        text = "\n".join(("--no-index", "--find-links wheels", *lines))
        (self._work / "requirements.txt").write_text(text)

    def run(
        self,
        prepare: Callable[[], None] | None = None,
        command: Sequence[str] = ("python", "-c", "import sys; print(sys.prefix)"),
        path: str = os.environ["PATH"],
        **more: Any,
    ) -> subprocess.CompletedProcess[str]:
        options = {"root": str(self.root), "uv": str(self._uv), "file": "requirements.txt", "tree": TREE}
        return subprocess.run(
            (sys.executable, "-I", "-S", "-c", TEXT, json.dumps({**options, **more}), *command),
            cwd=self._work,
            env={**os.environ, "PATH": path},
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


def test_in_an_image_its_programs_and_its_python_see_the_packages_too(folder: Folder) -> None:
    folder.require("tiny==1.0")
    use = (
        sys.executable,
        "-c",
        "import tiny; print(tiny.version)",
    )  # as torchrun of the image would start it
    ended = folder.run(command=use, image="team:1")
    assert ended.stdout == "1.0\n", ended.stderr
    assert "does not pin" not in ended.stderr
    assert folder.run(command=("tiny",), image="team:1").stdout == "1.0\n"
    [made] = (folder.root / str(os.getuid())).glob("*/complete")
    assert "include-system-site-packages = true" in (made.parent / "pyvenv.cfg").read_text()
    assert folder.run(command=("tiny",), image="team:2").stderr.count("installing"), "another image"
    assert "ModuleNotFoundError" in folder.run(command=use).stderr, "no image: only its own Python"


def test_an_image_without_uv_says_what_to_do(folder: Folder, tmp_path: Path) -> None:
    ended = folder.run(path=str(tmp_path / "empty"), uv="", image="team:1")
    assert ended.returncode == EXIT_CODE
    assert f"{FAILED}: this image has no uv" in ended.stderr
    assert "pip install uv" in ended.stderr


def test_versions_that_are_not_pinned_are_noted_where_instances_install_for_themselves(
    folder: Folder,
) -> None:
    folder.require("tiny")
    assert "does not pin every version" in folder.run(image="team:1").stderr
    assert "does not pin" not in folder.run().stderr


@pytest.mark.parametrize(
    ("lines", "pinned"),
    [
        ("a==1\n# b\n-r x.txt", True),
        ("a===1 ; python_version > '3'", True),
        ("./pkg", True),
        ("a", False),
        ("a>=1", False),
        ("a; python_version == '3.11'", False),
        ("a==1\nb", False),
    ],
)
def test_pinned_requirements_have_one_version_each(lines: str, pinned: bool) -> None:
    assert is_pinned(lines.encode()) == pinned


def test_making_an_environment_removes_those_that_were_not_used(folder: Folder) -> None:
    folder.run()
    [old] = folder.complete()
    os.utime(f"{old}.lock", (1, 1))
    folder.require("tiny")
    folder.run()
    assert old in folder.complete(), "by default, nothing is removed"
    os.utime(f"{old}.lock", (1, 1))
    folder.run(keep=3600, most=20)
    [new] = folder.complete()
    assert new != old
    folder.require("tiny==1.0")
    folder.run(keep=3600, most=1)  # the cache counts, too, and was used last
    assert new not in folder.complete()
