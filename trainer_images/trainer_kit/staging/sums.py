"""Hashes of staged files. A dataset may have a file SHA256SUMS with hashes, as sha256sum writes it."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from trainer_kit import dataset_versions
from trainer_kit.errors import DataError
from trainer_kit.staging.peers import Peers

NAME = dataset_versions.HASHES


def computed(folder: Path, names: list[str]) -> dict[str, str]:
    """Return the SHA-256 of each file in hexadecimal, by name."""
    sums = {}
    for name in names:
        with (folder / name).open("rb") as file:
            sums[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return sums


def written(sums: Mapping[str, str]) -> str:
    """Return these hashes in the form of a file SHA256SUMS."""
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items())


def check(folder: Path, sums: Mapping[str, str], uri: str) -> None:
    """Compare the hashes with those in the dataset's SHA256SUMS, if it has this file.

    Raises DataError, which names the file, if a hash differs, or a line of SHA256SUMS is malformed or names a
    file that is not in the dataset.
    """
    if NAME not in sums:
        return
    for number, line in enumerate((folder / NAME).read_text(errors="replace").splitlines(), 1):
        digest, _, name = line.partition("  ")
        name = name.removeprefix("./")
        if len(digest) != 64 or not name:
            raise DataError(
                f"{uri}/{NAME}, line {number}: expected a SHA-256 and a name, as sha256sum writes"
            )
        if name not in sums:
            raise DataError(f"{uri}/{NAME}, line {number}: {name!r} is not in the dataset")
        if sums[name] != digest.lower():
            raise DataError(
                f"{uri}/{name} is damaged: its SHA-256 is {sums[name]}, but {NAME} has {digest}. Publish the "
                "dataset again"
            )


def agree(sums: Mapping[str, str], peers: Peers) -> None:
    """Compare the hashes of all ranks. Raises DataError in all ranks if they differ."""
    digests = peers.of_each(hashlib.sha256(written(sums).encode()).digest())
    others = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if others:
        raise DataError(
            f"the staged files of the ranks {', '.join(map(str, others))} differ from those of rank 0: "
            "files in storage have changed, or a disk or a network is damaged. Submit the job again"
        )
