"""What a checkpoint is made of: each part with its size and its SHA-256."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Self

from trainer_kit.errors import DamagedError

FORMAT = 1


@dataclass(frozen=True)
class Part:
    """One file of a checkpoint, as it was written."""

    size: int
    """Bytes."""
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The last thing that is written of a checkpoint."""

    world_size: int
    """How many processes saved it."""
    parts: Mapping[str, Part]

    def to_json(self) -> bytes:
        """The manifest as it is stored."""
        parts = {name: asdict(part) for name, part in self.parts.items()}
        content = {"format": FORMAT, "world_size": self.world_size, "parts": parts}
        return json.dumps(content, indent=1).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Reads what `to_json` wrote; raises DamagedError where it is anything else."""
        try:
            content = json.loads(text)
            if content["format"] != FORMAT:
                raise DamagedError(f"its format is {content['format']!r}, and not {FORMAT}")
            parts = {name: Part(int(p["size"]), str(p["sha256"])) for name, p in content["parts"].items()}
            world_size = int(content["world_size"])
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise DamagedError("its manifest is not whole") from error
        if not parts or any(PurePosixPath(name).name != name for name in parts):
            raise DamagedError("its manifest names no parts, or some that lie elsewhere")
        return cls(world_size, parts)
