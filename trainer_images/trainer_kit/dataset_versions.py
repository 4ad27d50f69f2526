"""Versions of data sets in storage: `versionedDatasets/<dataset id>/<version>/`, as the service finds them.

A version is a hash of its files, so the same data is always the same version.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from trainer_kit import storage

VERSION_LENGTH = 16


class DatasetVersion(NamedTuple):
    """A version that is in storage."""

    version: str
    uri: str


def publish(files: Mapping[str, bytes], storage_uri: str, dataset_id: str) -> DatasetVersion:
    """Writes the files, by name, as a version of a data set; one that is there whole stays untouched."""
    version = _hash_of(files)
    uri = f"{_absolute(storage_uri)}/versionedDatasets/{dataset_id}/{version}"
    _publish_once(files, uri)
    return DatasetVersion(version, uri)


def _hash_of(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:VERSION_LENGTH]


def _absolute(uri: str) -> str:
    """`uri` without a slash at its end, and as a whole path if it is one: others read it elsewhere."""
    return uri.rstrip("/") if "://" in uri else str(Path(uri).resolve())


def _publish_once(files: Mapping[str, bytes], uri: str) -> None:
    filesystem, folder = storage.locate(uri)
    if all(filesystem.exists(f"{folder}/{name}") for name in files):
        return
    with TemporaryDirectory() as scratch:
        for name, content in files.items():
            (Path(scratch) / name).write_bytes(content)
        storage.publish(Path(scratch), uri, list(files))
