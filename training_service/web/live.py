"""Pages that change by themselves: streams of server-sent events."""

import asyncio
import logging
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing
from typing import Any, Final, TypeVar, cast

from starlette.responses import Response, StreamingResponse

from job_tracker.common.tasks import end
from job_tracker.domain.errors import LimitExceeded

log = logging.getLogger(__name__)

T = TypeVar("T")

_QUIET_SECONDS: Final = 15.0
"""After this time without an event, a comment shows browsers and proxies that the stream is alive."""
_RETRY_SECONDS: Final = 3
_END: Final = object()


class Closing(Exception):
    """Raised in a stream when the service stops."""


class LivePages:
    """The open streams of pages. `close` ends them, so that browsers connect to another replica."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0
        self._waiting: set[asyncio.Timeout] = set()
        self._closing = False

    def response(self, events: AsyncGenerator[str | bytes, None], ends_at: float = math.inf) -> Response:
        """Return a response that streams the events, and ends at the Unix time `ends_at`.

        Raises LimitExceeded if as many streams are open as the limit allows.
        """
        if self._open >= self._most:
            raise LimitExceeded(
                f"{self._open} pages are kept up to date, which is the limit (web.streams); close some",
                limit="web.streams",
                retry_after=_QUIET_SECONDS,
            )
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._read(events, ends_at), headers=headers, media_type="text/event-stream")

    def close(self) -> None:
        """End all streams."""
        self._closing = True
        for waiting in self._waiting:
            waiting.reschedule(asyncio.get_running_loop().time())

    async def wait(self, awaited: Awaitable[T], seconds: float = _QUIET_SECONDS) -> T | None:
        """Return the result of `awaited`; None if it takes longer than `seconds`.

        Raises Closing when the service stops.
        """
        try:
            async with asyncio.timeout(0 if self._closing else seconds) as waiting:
                self._waiting.add(waiting)
                try:
                    return await awaited
                finally:
                    self._waiting.discard(waiting)
        except TimeoutError:
            if not waiting.expired():
                raise
            if self._closing:
                raise Closing from None
            return None

    async def each(
        self, items: AsyncGenerator[T, None], pause: float = 0.0
    ) -> AsyncGenerator[T | None, None]:
        """Yield the items, on average at most one in `pause` seconds.

        Yield None after each _QUIET_SECONDS without an item. Close `items` at the end.
        """
        loop = asyncio.get_running_loop()
        coming: asyncio.Future[Any] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(items, _END))
                at = loop.time()
                # The shield keeps a timeout from cancelling `anext`, which would end the generator.
                item = await self.wait(asyncio.shield(coming))
                if item is _END:
                    return
                if item is not None:
                    coming = None
                yield cast(T | None, item)
                if item is not None and (rest := at + pause - loop.time()) > 0:
                    await self.wait(asyncio.sleep(rest))
        finally:
            if coming is not None:
                await end(coming)
            await items.aclose()

    async def _read(
        self, events: AsyncGenerator[str | bytes, None], ends_at: float
    ) -> AsyncIterator[str | bytes]:
        self._open += 1
        try:
            yield f"retry: {_RETRY_SECONDS * 1000}\n\n"
            async with aclosing(events):
                while True:
                    left = None if ends_at == math.inf else max(0.0, ends_at - time.time())
                    async with asyncio.timeout(left) as session:
                        event = await anext(events, None)
                    if event is None:
                        return
                    yield event
        except Closing:
            return
        except TimeoutError:
            if not session.expired():
                log.exception("a stream of a page failed")
        except Exception:  # the answer has begun, so no error page can replace it
            log.exception("a stream of a page failed")
        finally:
            self._open -= 1


_LINE_END: Final = re.compile(r"\r\n|\r|\n")
QUIET: Final = ": quiet\n\n"
"""A comment, which browsers ignore."""


def event(name: str, data: str) -> str:
    """Return the text of a server-sent event. `data` may have several lines."""
    lines = "".join(f"data: {line}\n" for line in _LINE_END.split(data))
    return f"event: {name}\n{lines}\n"
