"""A kill -9 before any change of the disk leaves no broken tree, and the next upload completes it."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from job_tracker.files.untrusted import Place
from job_tracker.trees.store import ProjectTrees, TreeStore
from job_tracker.trees.uploads import Upload
from tests.support.trees import manifest_of, put, sha256_of

CONTENT = b"x" * 3000
OLD = {"train.py": b"print(1)", "model.bin": CONTENT}
NEW = {"train.py": b"print(2)", "model.bin": CONTENT, "run.sh": b"#!/bin/sh\n"}
CHANGING = ("rename", "unlink", "rmdir", "mkdir", "link", "write", "fsync", "ftruncate", "utime", "fchmod")


class Killed(BaseException):
    """The process is dead from here on: its clean-up changes nothing any more."""


@contextmanager
def killed_before(number: int) -> Iterator[Callable[[], bool]]:
    """Let calls that change the disk fail, from this one on. Yield a function that returns whether any call
    failed.
    """
    calls = count()
    dead = [False]

    def guard(original: Callable[..., Any], changes: Callable[..., bool]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if changes(*args, **kwargs):
                dead[0] = dead[0] or next(calls) >= number
                if dead[0]:
                    raise Killed
            return original(*args, **kwargs)

        return call

    def creates(_path: object, flags: int, *_: object, **__: object) -> bool:
        return bool(flags & os.O_CREAT)

    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGING:
            patch.setattr(os, name, guard(getattr(os, name), lambda *_, **__: True))
        patch.setattr(os, "open", guard(os.open, creates))
        yield lambda: dead[0]


def story(trees: ProjectTrees) -> None:
    """Put a tree, then another one in two uploads, and remove the first."""
    put(trees, OLD)
    tree, text = manifest_of(NEW)
    trees.put(tree, text)
    with closing(Upload(trees, tree)) as first:
        first.write(sha256_of(NEW["run.sh"]), 0, NEW["run.sh"][:4])
    with closing(Upload(trees, tree)) as second:
        second.write(sha256_of(NEW["run.sh"]), 4, NEW["run.sh"][4:])
        second.write(sha256_of(NEW["train.py"]), 0, NEW["train.py"])
        assert second.finish().is_complete
    assert trees.remove_unused(time.time() + 60, {tree}) == [manifest_of(OLD)[0]]


def check(trees: ProjectTrees, folder: Path) -> None:
    for name in trees.blobs.names(99) if trees.blobs.is_folder() else []:
        content = (trees.blobs / name).path.read_bytes()
        assert hashlib.sha256(content).hexdigest() == name, "what has its name is complete"
    for files in (OLD, NEW):
        tree, _ = manifest_of(files)
        if trees.find(tree).is_complete:
            trees.unpack(tree, Place(folder, (f"found-{tree[:8]}",)))
        assert put(trees, files) == tree
        trees.unpack(tree, Place(folder, (f"put-{tree[:8]}",)))
    used = manifest_of(NEW)[0]
    trees.remove_unused(time.time() + 60, {used})
    assert trees.find(used).is_complete
    assert trees.blobs.names(99) == sorted({sha256_of(content) for content in NEW.values()})


def test_a_kill_at_any_moment_leaves_no_broken_tree(tmp_path: Path) -> None:
    for number in count():
        folder = tmp_path / str(number)
        folder.mkdir()
        trees = TreeStore(folder / "programs").of("vision")
        with killed_before(number) as was_killed:
            with suppress(Killed):
                story(trees)
            if not was_killed():
                assert number > 40, "the story changes the disk more than 40 times"
                return
        check(TreeStore(folder / "programs").of("vision"), folder)
