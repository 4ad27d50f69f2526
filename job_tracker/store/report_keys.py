"""The protocol for the keys from which the report tokens of training processes are made."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.report_key import ReportKey


class ReportKeyStore(Protocol):
    """Stores keys. Every store has a current key; earlier keys are kept while a live attempt may use them.

    Each change of keys changes `access_version`, too. An `event` is stored in the transaction of the change
    that it records.
    """

    async def access_version(self) -> int:
        """Return a number that differs after each change of keys, tokens or projects; see AccessStore."""
        ...

    async def report_keys(self) -> Sequence[ReportKey]:
        """Return all keys, in the order of their ids. The last key is the current key."""
        ...

    async def rotate_report_key(
        self, secret: bytes, at: datetime, by: str, *, event: AuditEvent | None = None
    ) -> ReportKey | None:
        """Make a new key, which is the current key from now on, and return it.

        The previous key is kept for the attempts that are live now. First, replaced keys that no live attempt
        may use are deleted. If MOST_KEYS keys are left, return None, and make no key. The new key is the
        target of the event.
        """
        ...

    async def remove_report_key(
        self, key_id: int, at: datetime, *, event: AuditEvent | None = None
    ) -> ReportKey | None:
        """Mark a replaced key as removed, and return it. From then on, reports with its tokens are refused.

        The key is kept while a live attempt may use it, since the processes of the attempt need the key to
        recognise each other. Until the key is deleted, the call may be repeated. Return None if this is the
        current key, or if there is no such key.
        """
        ...

    async def purge_report_keys(self) -> Sequence[int]:
        """Delete the replaced keys that no live attempt may use, and return their ids."""
        ...
