"""Folders of files behind any fsspec URI, or a plain path."""

import contextlib
import secrets
from collections.abc import Sequence
from pathlib import Path

import fsspec
from fsspec import AbstractFileSystem

from trainer_kit.errors import StorageError


def locate(uri: str) -> tuple[AbstractFileSystem, str]:
    """The file system that `uri` names, and the path on it, with no slash at its end."""
    try:
        filesystem, path = fsspec.url_to_fs(uri)
    except (ValueError, ImportError) as error:
        raise StorageError(f"cannot use {uri}: {error}") from error
    return filesystem, path.rstrip("/")


def publish(folder: Path, uri: str, names: Sequence[str]) -> None:
    """Copies the files `names` of the local `folder` to `uri`, in that order.

    Each is written aside and then moved to its name, so a reader never meets half a file, and one
    who waits for the last name finds the others there. What is there under these names is replaced.
    """
    filesystem, target = locate(uri)
    filesystem.makedirs(target, exist_ok=True)
    aside = {name: f"{target}/.{name}.{secrets.token_hex(4)}.partial" for name in names}
    try:
        for name in names:
            filesystem.put_file(str(folder / name), aside[name])
        for name in names:
            filesystem.mv(aside[name], f"{target}/{name}")
    except BaseException:
        for path in aside.values():
            with contextlib.suppress(OSError):  # moved already, or never written
                filesystem.rm_file(path)
        raise
