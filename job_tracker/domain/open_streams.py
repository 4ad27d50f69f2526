"""The open streams of callers, which end when a caller loses its right to read them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

from job_tracker.domain import rights
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import Forbidden, NotAllowed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StreamUse:
    """What a stream is for: its reader, the operation, and the project of the job."""

    caller: Caller
    operation: str
    project: str


class OpenStreams:
    """Passes on the items of streams. `recheck` ends those that their callers may no longer read."""

    def __init__(self) -> None:
        self._open: set[_OpenStream] = set()

    async def read(
        self, begin: Callable[[], Awaitable[tuple[StreamUse, AsyncGenerator[T, None]]]]
    ) -> AsyncGenerator[T, None]:
        """Yield the items of the stream that `begin` gives, and close it."""
        use, items = await begin()
        stream = _OpenStream(use)
        self._open.add(stream)
        try:
            async with aclosing(items):
                while True:
                    # Keep no reference to the item while its reader is slow: it may be large.
                    yield await stream.next(items)
        except StopAsyncIteration:
            return
        finally:
            self._open.discard(stream)

    async def recheck(self, current: Callable[[Caller], Awaitable[Caller]]) -> None:
        """End the streams whose callers have lost their right. Call it when roles may have changed.

        `current` returns a caller with its present roles, and raises NotAllowed if it is no longer one. It is
        called once for each caller. Its other errors are raised; streams that were not checked continue.
        """
        by_caller: dict[int, list[_OpenStream]] = {}
        for stream in self._open:
            by_caller.setdefault(id(stream.use.caller), []).append(stream)
        for streams in by_caller.values():
            try:
                caller = await current(streams[0].use.caller)
            except NotAllowed as error:
                for stream in streams:
                    stream.end(error)
                continue
            for stream in streams:
                try:
                    rights.check(caller, stream.use.operation, stream.use.project)
                except Forbidden as error:
                    stream.end(error)


class _OpenStream:
    def __init__(self, use: StreamUse) -> None:
        self.use = use
        self._error: Exception | None = None
        self._waiting: asyncio.Timeout | None = None

    def end(self, error: Exception) -> None:
        """End the stream. A waiting reader gets the error at once, others instead of the next item."""
        self._error = error
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def next(self, items: AsyncGenerator[T, None]) -> T:
        """Return the next item. Raises StopAsyncIteration after the last one, and the error of `end`."""
        if self._error is not None:
            raise self._error
        try:
            async with asyncio.timeout(None) as self._waiting:
                return await anext(items)
        except TimeoutError:
            if self._error is None:
                raise
            raise self._error from None
        finally:
            self._waiting = None
