"""Keys that need work: each once, never two workers on one, failures again after a growing delay."""

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
    """How a work queue keeps up: what it has to do, how long that has been so, and what it did in vain."""

    depth: int
    """Keys that wait for a worker."""
    oldest_seconds: float
    """How long the first of them has waited."""
    longest_seconds: float
    """How long the slowest of the workers has been at its key."""
    retries: int
    """How often work on a key has failed."""


class WorkQueue(Generic[K]):
    """What Kubernetes' controllers call a rate-limited work queue (client-go, util/workqueue).

    A key that is added again while it waits is worked on once; added while it is worked on, it is
    worked on once more afterwards. An exception of the handler is logged, and the key comes again
    after up to 0.1 s, 0.2 s, … at most 30 s. Nothing that a handler raises ends the queue.
    """

    def __init__(
        self,
        handle: Callable[[K], Awaitable[timedelta | None]],
        *,
        workers: int,
        expected: tuple[type[Exception], ...] = (),
    ) -> None:
        """`handle` works on a key, and says after what time it wants to see it again, if at all.

        Of what it raises, `expected` is logged in one line, and anything else with its traceback.
        """
        self._handle = handle
        self._expected = expected
        self._workers = workers
        self._waiting: dict[K, float] = {}  # since when, as for those below
        self._active: dict[K, float] = {}
        self._again: set[K] = set()
        self._backoffs: dict[K, Backoff] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()
        self._retries = 0

    @property
    def health(self) -> QueueHealth:
        """How it keeps up. Any thread may ask, also while the event loop is stuck."""
        now = time.monotonic()
        waiting, active = list(self._waiting.values()), list(self._active.values())
        return QueueHealth(
            depth=len(waiting),
            oldest_seconds=now - min(waiting, default=now),
            longest_seconds=now - min(active, default=now),
            retries=self._retries,
        )

    def add(self, key: K) -> None:
        """Have the key worked on as soon as a worker is free."""
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if key in self._active:
            self._again.add(key)
        else:
            self._waiting.setdefault(key, time.monotonic())
            self._wake.set()

    def add_within(self, key: K, delay: timedelta) -> None:
        """Have the key worked on after so long, or sooner if it is to be by then anyway."""
        if key not in self._waiting:
            self._add_later(key, delay)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._workers):
                    workers.create_task(self._work())
        finally:
            for timer in self._timers.values():
                timer.cancel()

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
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
                    "work on %s failed; it is tried again in %.1f s: %s",
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
    """Whether it is this task that is cancelled, and not only what it has waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
