"""The API's operations on the keys of report tokens, independent of the API's protocol."""

import logging
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from job_tracker.common.clock import utc_now
from job_tracker.domain.audit import EventObserver, Outcome, event_of, ignore_event, target_of_report_key
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import LimitExceeded, NotPossible, UnknownReference
from job_tracker.domain.guard import Guard
from job_tracker.domain.report_key import MOST_KEYS, ReportKey
from job_tracker.reports import ReportKeys
from job_tracker.store.report_keys import ReportKeyStore

log = logging.getLogger(__name__)

_SECRET_BYTES: Final = 32


class ReportKeyAccess:
    """Rotates, lists and removes the keys from which the tokens of training processes are made.

    Every operation raises Forbidden if the caller is not an operator. A change takes effect in this
    replica when the operation returns, and in other replicas within a second.
    """

    def __init__(
        self,
        store: ReportKeyStore,
        keys: ReportKeys,
        clock: Callable[[], datetime] = utc_now,
        note: EventObserver = ignore_event,
    ) -> None:
        """`note` gets an event for each denial."""
        self._store = store
        self._keys = keys
        self._clock = clock
        self._guard = Guard(note, clock)

    async def list_report_keys(self, caller: Caller) -> Sequence[ReportKey]:
        """Return the keys, sorted by id. The current key has the highest id, so it is the last.

        Each replaced key comes with the live attempts that may still use it.
        """
        self._guard.check_everywhere(caller, "list_report_keys")
        await self._keys.purge()
        return await self._store.report_keys()

    async def rotate_report_key(self, caller: Caller) -> ReportKey:
        """Make a new key for the attempts that begin from now on, and return it.

        Live attempts keep their key. The service deletes a replaced key when the last attempt that uses it
        has ended. Raises LimitExceeded if MOST_KEYS keys are in use.
        """
        self._guard.check_everywhere(caller, "rotate_report_key")
        event = event_of(caller, "rotate_report_key", Outcome.DONE, self._clock())
        key = await self._store.rotate_report_key(
            secrets.token_bytes(_SECRET_BYTES), event.at, caller.name, event=event
        )
        if key is None:
            raise LimitExceeded(
                f"live attempts use {MOST_KEYS} keys of report tokens, which is the limit; wait until "
                "some of them have ended, or cancel the jobs that use the oldest keys",
                limit="report keys",
            )
        log.info("%s made report key %d", caller.name, key.id)
        await self._keys.refresh()
        return key

    async def remove_report_key(self, caller: Caller, key_id: int) -> ReportKey:
        """Remove a replaced key, so that reports with its tokens are refused at once.

        The key is only marked as removed: the processes of live attempts that use it still need it to
        recognise each other. The service deletes the key when the last of these attempts has ended. Until
        then, the call may be repeated.

        Raises UnknownReference if the key does not exist, and NotPossible if it is the current key.
        """
        target = target_of_report_key(key_id)
        self._guard.check_everywhere(caller, "remove_report_key", target)
        event = event_of(caller, "remove_report_key", Outcome.DONE, self._clock(), target=target)
        key = await self._store.remove_report_key(key_id, event.at, event=event)
        if key is None:
            known = {each.id: each for each in await self._store.report_keys()}
            if key_id not in known:
                raise UnknownReference("id", f"report key {key_id} doesn't exist; allowed: {_ids(known)}")
            raise NotPossible(f"report key {key_id} is the current key; rotate the keys first")
        log.info("%s removed report key %d", caller.name, key.id)
        await self._keys.refresh()
        return key


def _ids(known: dict[int, ReportKey]) -> str:
    return (
        ", ".join(str(each.id) for each in known.values() if each.replaced_at)
        or "none, since only the current key exists"
    )
