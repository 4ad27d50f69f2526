"""Blocking streams read by an event loop: what becomes of one that is closed."""

import threading
from collections.abc import Iterator

from job_tracker.backends.docker.streams import streamed


class Stream:
    """Tells of one thing after the other; once it is closed, of those that are under way, and then ends."""

    def __init__(self, under_way: int) -> None:
        self.ended = threading.Event()
        self._closed = threading.Event()
        self._under_way = under_way

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if not self._closed.is_set():
            return 1
        self._under_way -= 1
        if self._under_way < 0:
            self.ended.set()
            raise StopIteration
        return 1

    def close(self) -> None:
        self._closed.set()


async def test_a_stream_that_is_closed_is_read_to_its_end_so_that_its_connection_is_let_go() -> None:
    stream = Stream(under_way=200)
    items = streamed(lambda: stream, silence=None)
    assert await anext(items) == 1
    await items.aclose()
    assert stream.ended.wait(10)
