"""The settings of staging, read from the environment."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trainer_kit import environment
from trainer_kit.staging.ways import Way

_GB = 10**9


@dataclass(frozen=True)
class Settings:
    """The settings of staging."""

    way: Way = Way.NONE
    folder: Path | None = None
    """A folder of this machine in which staged datasets stay for later jobs; None: they do not stay."""
    most_bytes: int = 100 * _GB
    """The largest total size in bytes of the datasets in that folder."""

    @classmethod
    def from_environment(cls) -> Self:
        """Read the variables. Raises ParameterError if one is invalid; the error names it."""
        folder = environment.text("STAGING_FOLDER", default="")
        gigabytes = environment.positive_number("STAGING_GB", default=cls.most_bytes / _GB)
        return cls(
            way=environment.choice("DATA_STAGING", Way, cls.way),
            folder=Path(folder) if folder else None,
            most_bytes=int(gigabytes * _GB),
        )
