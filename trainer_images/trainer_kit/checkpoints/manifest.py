"""The manifest of a checkpoint: the size and SHA-256 of each part."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Self

from trainer_kit.errors import DamagedError

FORMAT = 1


@dataclass(frozen=True)
class Part:
    """The size and hash of one file of a checkpoint."""

    size: int
    """The size in bytes."""
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The list of a checkpoint's parts. Its file is the last file of a checkpoint to be written."""

    world_size: int
    """The number of processes that saved the checkpoint."""
    parts: Mapping[str, Part]

    @property
    def size(self) -> int:
        """The size of all parts in bytes."""
        return sum(part.size for part in self.parts.values())

    def to_json(self) -> bytes:
        """Return the stored form of the manifest."""
        parts = {name: asdict(part) for name, part in self.parts.items()}
        content = {"format": FORMAT, "world_size": self.world_size, "parts": parts}
        return json.dumps(content, indent=1).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Parse the output of `to_json`. Raises DamagedError for anything else."""
        try:
            content = json.loads(text)
            if content["format"] != FORMAT:
                raise DamagedError(f"its manifest has the format {content['format']!r} instead of {FORMAT}")
            parts = {name: Part(int(p["size"]), str(p["sha256"])) for name, p in content["parts"].items()}
            world_size = int(content["world_size"])
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise DamagedError("its manifest is damaged") from error
        if not parts or any(PurePosixPath(name).name != name for name in parts):
            raise DamagedError("its manifest names no parts, or parts outside the folder")
        return cls(world_size, parts)
