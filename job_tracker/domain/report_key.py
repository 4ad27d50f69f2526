"""The keys from which the report tokens of training processes are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

FIRST_KEY: Final = 1
"""The id of the key that is made together with the store. Tokens that name no key belong to this key."""
MOST_KEYS: Final = 32
"""The largest number of keys that a store keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportKey:
    """A key. Attempts that begin now get their tokens from the current key, which has the highest id."""

    id: int
    secret: bytes = field(repr=False)
    made_at: datetime | None = None
    """None for the first key, which is as old as its store."""
    made_by: str = ""
    """The name of the caller that made the key; empty for the first key."""
    replaced_at: datetime | None = None
    """The time at which the next key was made; None for the current key."""
    removed_at: datetime | None = None
    """The time at which a call removed the key. Since then, reports with tokens of the key are refused."""
    attempts: Mapping[int, int] = field(default_factory=dict)
    """The attempts that may use a replaced key: by job id, the attempt that was live at the replacement.

    Some of these attempts may have ended since. The current key has no entries.
    """
