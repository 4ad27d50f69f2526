"""A published model: a folder of files and a manifest.

The manifest is written last and has the SHA-256 of every file. So a folder is a model only if it has a
manifest and all files match it, and an incomplete upload is not mistaken for a model.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trainer_kit import storage
from trainer_kit.errors import ArtifactError
from trainer_kit.progress import Reporter

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Artifact:
    """A downloaded and verified model."""

    folder: Path
    manifest: Mapping[str, Any]


@contextmanager
def publishing(uri: str, description: Mapping[str, Any], reporter: Reporter | None = None) -> Iterator[Path]:
    """Yield an empty local folder, and publish its files to `uri` at the end of the `with` block.

    The manifest is `description` plus the files with their hashes. If the block fails, nothing is published.
    Only one process of a group may publish. `reporter` reports each file as an artifact.
    """
    with TemporaryDirectory(prefix="artifact-") as scratch:
        folder = Path(scratch)
        yield folder
        names = sorted(path.name for path in folder.iterdir())
        files = {name: {"sha256": _hash_of(folder / name)} for name in names}
        manifest = json.dumps({**description, "files": files}, indent=2) + "\n"
        (folder / MANIFEST).write_text(manifest, encoding="utf-8")
        storage.publish(folder, uri, [*names, MANIFEST])
        if reporter is None:
            return
        for name in [*names, MANIFEST]:
            path, kind = folder / name, "manifest" if name == MANIFEST else "model"
            size, digest = path.stat().st_size, _hash_of(path)
            reporter.artifact(name, f"{uri}/{name}", kind=kind, size=size, sha256=digest)


@contextmanager
def opened(uri: str) -> Iterator[Artifact]:
    """Download the model at `uri` to a local folder for the duration of a `with` block.

    Raises ArtifactError if the manifest is missing or malformed, or if a file is missing or does not match
    the manifest. Raises StorageError if the kind of storage is unknown.
    """
    filesystem, source = storage.locate(uri)
    with TemporaryDirectory(prefix="artifact-") as scratch:
        folder = Path(scratch)
        try:
            filesystem.get_file(f"{source}/{MANIFEST}", str(folder / MANIFEST))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ArtifactError(f"{uri} is not a model: it has no {MANIFEST}") from error
        manifest, hashes = _read_manifest(folder / MANIFEST, uri)
        for name, expected in hashes.items():
            try:
                filesystem.get_file(f"{source}/{name}", str(folder / name))
            except FileNotFoundError as error:
                raise ArtifactError(f"{uri} is not a complete model: {name} is missing") from error
            if _hash_of(folder / name) != expected:
                raise ArtifactError(
                    f"{uri} is not a complete model: the SHA-256 of {name} is not the one in {MANIFEST}"
                )
        yield Artifact(folder, manifest)


def _read_manifest(path: Path, uri: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the manifest, and the SHA-256 of each file in it. Raises ArtifactError if it is malformed."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        hashes = {name: file["sha256"] for name, file in manifest["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{uri} is not a model: its {MANIFEST} does not list its files") from error
    if any(Path(name).name != name for name in hashes):
        raise ArtifactError(f"{uri} is not a model: its {MANIFEST} names files outside the folder")
    return manifest, hashes


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
