"""Publishes versions of datasets where the service finds them: `versionedDatasets/<dataset id>/<version>/`.

The name of a version is the start of a hash of its files in their order. So the same files in the same order
always have the same version. A file of hashes is beside the data. `staging` copies the files to the ranks,
and compares the copies with these hashes.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from trainer_kit import storage

VERSION_LENGTH = 16
HASHES = "SHA256SUMS"
"""The file with the hashes of the other files, in the format of sha256sum."""


class DatasetVersion(NamedTuple):
    """A version in storage."""

    version: str
    uri: str


def publish(files: Mapping[str, bytes], storage_uri: str, dataset_id: str) -> DatasetVersion:
    """Write the files as a version of a dataset, unless storage has all of them. Return the version.

    `files` has the content of each file by name.
    """
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
    """Return `uri` without a trailing slash. Make a path absolute: it is then valid in any working folder."""
    return uri.rstrip("/") if "://" in uri else str(Path(uri).resolve())


def _publish_once(files: Mapping[str, bytes], uri: str) -> None:
    filesystem, folder = storage.locate(uri)
    if all(filesystem.exists(f"{folder}/{name}") for name in (*files, HASHES)):
        return
    with TemporaryDirectory() as scratch:
        for name, content in files.items():
            (Path(scratch) / name).write_bytes(content)
        hashes = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
        (Path(scratch) / HASHES).write_text("".join(hashes))
        storage.publish(Path(scratch), uri, [*files, HASHES])
