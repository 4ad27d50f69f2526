"""A queue of keys that need work. A waiting key is in it only once.

Two workers never handle the same key at once. Failures are retried after growing delays.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from job_tracker.common.backoff import Backoff

K = TypeVar("K", bound=Hashable)

log = logging.getLogger(__name__)

_FIRST_DELAY, _LONGEST_DELAY = 0.1, 30.0


@dataclass(frozen=True, slots=True)
class QueueHealth:
    """The load of a work queue."""

    depth: int
    """The number of keys that wait for a worker."""
    oldest_seconds: float
    """The longest time that one of these keys has waited."""
    longest_seconds: float
    """The longest time that a worker has worked on its present key."""
    retries: int
    """The number of failures so far, for all keys together."""


class WorkQueue(Generic[K]):
    """A rate-limited work queue, as in Kubernetes controllers (client-go, util/workqueue).

    A key that is added again while it waits is handled once. A key that is added while it is being handled is
    handled once more afterwards. After an exception, the key is retried within 0.1 s. This delay doubles with
    each further exception, up to 30 s. No exception of a handler ends the queue.
    """

    def __init__(
        self,
        handle: Callable[[K], Awaitable[timedelta | None]],
        *,
        workers: int,
        expected: tuple[type[Exception], ...] = (),
    ) -> None:
        """Pass each key to `handle`, which may return the delay after which it wants the key again.

        `expected` errors are logged in one line; other errors are logged with a traceback.
        """
        self._handle = handle
        self._expected = expected
        self._workers = workers
        self._waiting: dict[K, float] = {}  # the time at which each key began to wait
        self._active: dict[K, float] = {}  # the time at which a worker began with each key
        self._again: set[K] = set()
        self._backoffs: dict[K, Backoff] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._ready = asyncio.Semaphore(0)  # counts the waiting keys: each key wakes one worker
        self._retries = 0

    @property
    def health(self) -> QueueHealth:
        """Return the current load. Safe in any thread, even while the event loop is stuck."""
        now = time.monotonic()
        waiting, active = list(self._waiting.values()), list(self._active.values())
        return QueueHealth(
            depth=len(waiting),
            oldest_seconds=now - min(waiting, default=now),
            longest_seconds=now - min(active, default=now),
            retries=self._retries,
        )

    def add(self, key: K) -> None:
        """Let a worker handle the key as soon as a worker is free."""
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if key in self._active:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = time.monotonic()
            self._ready.release()

    def add_within(self, key: K, delay: timedelta) -> None:
        """Let a worker handle the key after the delay, or earlier if an earlier time is already planned."""
        if key not in self._waiting:
            self._add_later(key, delay)

    async def run(self) -> None:
        """Handle keys until cancelled."""
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._workers):
                    workers.create_task(self._work())
        finally:
            for timer in self._timers.values():
                timer.cancel()

    async def _work(self) -> None:
        while True:
            await self._ready.acquire()
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._active[key] = time.monotonic()
            try:
                delay = await self._handle(key)
                self._backoffs.pop(key, None)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
                    raise
                self._retries += 1
                seconds = self._backoffs.setdefault(key, Backoff(_FIRST_DELAY, _LONGEST_DELAY)).next()
                unforeseen = None if isinstance(error, self._expected) else error
                log.log(
                    logging.ERROR if unforeseen else logging.WARNING,
                    "work on %s failed; retry in %.1f s: %s",
                    key, seconds, error, exc_info=unforeseen,
                )  # fmt: skip
                delay = timedelta(seconds=seconds)
            finally:
                del self._active[key]
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            elif delay is not None:
                self._add_later(key, delay)

    def _add_later(self, key: K, delay: timedelta) -> None:
        loop = asyncio.get_running_loop()
        known = self._timers.get(key)
        if known is not None and known.when() <= loop.time() + delay.total_seconds():
            return
        if known is not None:
            known.cancel()
        self._timers[key] = loop.call_later(delay.total_seconds(), self.add, key)


def _is_being_cancelled() -> bool:
    """Return whether this task itself is being cancelled, not only something that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
