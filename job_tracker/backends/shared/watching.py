"""A watch, made from a function that observes all groups or machines, and from a feed of changes."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from typing import TypeVar

from job_tracker.backends.base import Mark
from job_tracker.common.broadcast import Broadcast

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
W = TypeVar("W")


async def watched(
    look: Callable[[], Awaitable[Mapping[K, W]]], feed: Broadcast[K, V]
) -> AsyncGenerator[tuple[K, V | W] | Mark, None]:
    """Yield the items that `look` returns, then END_OF_SNAPSHOT, then changes from `feed`: see Backend.watch.

    Changes that arrive before `look` returns are not yielded, because they may be out of date by then: for
    example, their group may have been stopped since. So the result of `look` must include these changes:
    `look` must not await anything between its observation and its return.
    """
    found = await look()
    with feed.subscribe() as changes:
        for each in found.items():
            yield each
        yield Mark.END_OF_SNAPSHOT
        async for change in changes:
            yield change
