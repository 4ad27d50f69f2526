"""Trees of files, for tests."""

import hashlib
from collections.abc import Mapping

from job_tracker.trees.store import ProjectTrees, TreeStatus
from job_tracker.trees.uploads import Upload

FILES = {"train.py": b"print('hello')\n", "data/words.txt": b"one two three\n", "run.sh": b"#!/bin/sh\n"}


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def line(path: str, content: bytes = b"", mode: str = "644", *, sha256: str = "", size: int = -1) -> bytes:
    """Return the line of a file in a manifest."""
    number = len(content) if size < 0 else size
    return f"{mode} {number} {sha256 or sha256_of(content)} {path}\n".encode()


def manifest_of(files: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Return the name and the manifest of the tree with these files. Shell scripts are executable."""
    ordered = sorted(files.items(), key=lambda item: item[0].encode())
    text = b"".join(
        line(path, content, "755" if path.endswith(".sh") else "644") for path, content in ordered
    )
    return sha256_of(text), text


def put(trees: ProjectTrees, files: Mapping[str, bytes]) -> str:
    """Put a complete tree with these files into the store, and return its name."""
    tree, text = manifest_of(files)
    trees.put(tree, text)
    assert send(trees, tree, files.values()).is_complete
    return tree


def send(trees: ProjectTrees, tree: str, contents: object) -> TreeStatus:
    """Upload the contents of these files of a tree, each in one piece, and return the status of the tree."""
    upload = Upload(trees, tree)
    try:
        for content in contents:  # type: ignore[attr-defined]
            upload.write(sha256_of(content), 0, content)
        return upload.finish()
    finally:
        upload.close()
