"""Folders at an fsspec URI or a plain path."""

import contextlib
import random
import secrets
from collections.abc import Sequence
from pathlib import Path

import fsspec
from fsspec import AbstractFileSystem

from trainer_kit.errors import StorageError


def locate(uri: str) -> tuple[AbstractFileSystem, str]:
    """Return the file system of `uri`, and the path on it without a trailing slash.

    Raises StorageError if the URI is invalid, or the library for it is missing.
    """
    # This call imports the libraries of the file system. Some libraries draw random numbers at their import
    # (aiobotocore did, with httpx). A seeded training would then get other random numbers than with a plain
    # folder.
    state = random.getstate()
    try:
        filesystem, path = fsspec.url_to_fs(uri)
    except (ValueError, ImportError) as error:
        raise StorageError(f"cannot use {uri}: {error}") from error
    finally:
        random.setstate(state)
    return filesystem, path.rstrip("/")


def publish(folder: Path, uri: str, names: Sequence[str]) -> None:
    """Copy the files `names` of the local `folder` to `uri` in this order, replacing existing ones.

    Each file is uploaded under a temporary name and then renamed. So a reader never finds an incomplete file,
    and if the last name exists, so do all others.
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
            with contextlib.suppress(OSError):  # already renamed, or not written
                filesystem.rm_file(path)
        raise
