"""The protocol for the notes of scheduling: the facts that replicas and later leaders need.

A note is a short text with a kind and a key. The kinds are constants of the scheduler. For the store, they
are arbitrary strings.
"""

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from job_tracker.store.lease import Term

Changed: TypeAlias = Mapping[tuple[str, str], str | None]
"""Notes by kind and key. None, or an empty text: the note is removed."""


class SchedulingStore(Protocol):
    """Keeps the notes of scheduling. The leader writes them, and every replica reads them."""

    async def scheduling_notes(self, kind: str) -> Mapping[str, str]:
        """Return all notes of a kind, by key."""
        ...

    async def scheduling_note(self, kind: str, key: str) -> str | None:
        """Return the note of this kind and key; None if there is none."""
        ...

    async def keep_scheduling_notes(self, changed: Changed, *, term: Term | None = None) -> None:
        """Write the notes in `changed`, and remove notes whose new text is None or empty.

        Other notes stay. Up to 1,000 notes are changed in one atomic step. More notes may take several steps.
        """
        ...
