"""A blocking iterator, such as a stream of the client library, read by an event loop."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

T = TypeVar("T", covariant=True)

_AHEAD = 64


class ClosableIterator(Protocol[T]):
    """What a blocking stream is: `close`, called by another thread, ends it."""

    def __iter__(self) -> Iterator[T]: ...

    def close(self) -> None:
        """Let go of what it reads from."""
        ...


class _Pump(Generic[T]):
    """A thread that reads the stream, never more than _AHEAD items before who takes them."""

    def __init__(self, open_stream: Callable[[], ClosableIterator[T]]) -> None:
        self._open = open_stream
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_AHEAD)
        self._items: deque[T] = deque()
        self._arrived = asyncio.Event()
        self._stream: ClosableIterator[T] | None = None
        self._closing = threading.Lock()
        self._closed = False
        self._ended = False
        self._error: Exception | None = None
        # A daemon: one that hangs in a dead connection must not hold up the end of the service.
        threading.Thread(target=self._run, name="docker stream", daemon=True).start()

    async def next(self) -> T | None:
        """The next item; None after the last one. Raises what the stream has raised."""
        while not self._items:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return None
            self._arrived.clear()
            await self._arrived.wait()
        self._room.release()
        return self._items.popleft()

    def close(self) -> None:
        """End the stream, and with it the thread."""
        with self._closing:
            self._closed = True
            self._room.release()
            if self._stream is not None:
                with suppress(Exception):  # it is closed as well as can be
                    self._stream.close()

    def _run(self) -> None:
        error: Exception | None = None
        try:
            stream = self._open()
            with self._closing:
                self._stream = stream
                if self._closed:
                    stream.close()
            for item in stream:
                self._room.acquire()
                if self._closed:
                    break
                self._tell(self._items.append, item)
            for _ in stream:  # what is left of one that was closed: its connection is let go at the end
                pass
        except Exception as raised:
            error = raised
        finally:
            self._tell(self._end, error)

    def _end(self, error: Exception | None) -> None:
        self._ended, self._error = True, error

    def _tell(self, change: Callable[[T], None] | Callable[[Exception | None], None], what: object) -> None:
        def told() -> None:
            change(what)  # type: ignore[arg-type]
            self._arrived.set()

        with suppress(RuntimeError):  # the loop is closed: nobody reads any more
            self._loop.call_soon_threadsafe(told)


async def streamed(
    open_stream: Callable[[], ClosableIterator[T]], silence: float | None
) -> AsyncGenerator[T, None]:
    """The items of the stream that `open_stream` opens, in a thread of its own.

    Raises what it raises, and TimeoutError if nothing comes for `silence` seconds, if that is given.
    """
    pump = _Pump(open_stream)
    try:
        while True:
            async with asyncio.timeout(silence):
                item = await pump.next()
            if item is None:
                return
            yield item
    finally:
        pump.close()
