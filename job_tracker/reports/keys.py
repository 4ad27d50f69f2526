"""The keys of report tokens, as this replica knows them."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.report_key import ReportKey
from job_tracker.store.report_keys import ReportKeyStore

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 0.5
"""The seconds between two checks for changes by other replicas."""
PURGE_SECONDS: Final = 30.0
"""The seconds between two checks for replaced keys that no live attempt may use."""


class ReportKeys:
    """All keys of the store. While the store answers, changes arrive within about half a second.

    While the store does not answer, the known keys stay valid: reports then wait in memory, and ranks of
    live groups must still be able to report. Create an object with `ReportKeys.open`.
    """

    def __init__(self, store: ReportKeyStore, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._keys: dict[int, ReportKey] = {}
        self._version: int | None = None
        self._checking = asyncio.Lock()
        self._purged_at = monotonic()

    @classmethod
    async def open(cls, store: ReportKeyStore) -> "ReportKeys":
        """Read the keys from the store, and return them. Raises StoreUnavailable."""
        keys = cls(store)
        await keys.refresh()
        return keys

    @property
    def current(self) -> ReportKey:
        """The key of attempts that begin now."""
        return self._keys[max(self._keys)]

    def of(self, job_id: int, attempt: int) -> ReportKey:
        """Return the key that was current when the attempt began.

        All launches of the attempt get the same key. Before this call, store the attempt as live, and then
        call `refresh`: otherwise this replica may miss that the key has been replaced.
        """
        replaced = (key for _, key in sorted(self._keys.items()) if key.attempts.get(job_id) == attempt)
        return next(replaced, self.current)

    async def find(self, key_id: int) -> ReportKey | None:
        """Return the key with this id; None if the store has no such key. Raises StoreUnavailable."""
        if key_id not in self._keys:
            await self.refresh()
        return self._keys.get(key_id)

    async def refresh(self) -> None:
        """Read the keys again if any have changed.

        If the store does not answer, keep the known keys, and raise StoreUnavailable.
        """
        async with self._checking:
            version = await self._store.access_version()
            if version != self._version:
                self._keys = {key.id: key for key in await self._store.report_keys()}
                self._version = version

    async def follow(self) -> None:
        """Follow changes by other replicas, and delete keys that are no longer used, until cancelled."""
        problem = ""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.refresh()
                if len(self._keys) > 1 and self._monotonic() - self._purged_at >= PURGE_SECONDS:
                    await self.purge()
                problem = ""
            except StoreUnavailable as error:
                if str(error) != problem:
                    log.warning("the keys of report tokens cannot be checked: %s", error)
                problem = str(error)
            except Exception:  # the task must survive every error, or removed keys would stay valid
                log.exception("the keys of report tokens cannot be kept up to date")

    async def purge(self) -> None:
        """Delete replaced keys that no live attempt may use. Raises StoreUnavailable."""
        self._purged_at = self._monotonic()
        if gone := await self._store.purge_report_keys():
            log.info("deleted report keys %s: no live attempt uses them", ", ".join(map(str, gone)))
            await self.refresh()
