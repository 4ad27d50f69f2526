"""The watch of a backend that can observe all groups and has a feed of changes."""

from collections.abc import Awaitable, Callable, Mapping

from job_tracker.backends.base import Mark, Observation, Watch
from job_tracker.common.broadcast import Broadcast
from job_tracker.domain.group import GroupRef


async def watched(
    look: Callable[[], Awaitable[Mapping[GroupRef, Observation]]], feed: Broadcast[GroupRef, Observation]
) -> Watch:
    """Watch the groups that `look` returns: see Backend.watch.

    Changes from before the return of `look` are left out: one of them could be about a group that was stopped
    afterwards. So `look` must not await anything between its observation and its return.
    """
    found = await look()
    with feed.subscribe() as changes:
        for each in found.items():
            yield each
        yield Mark.END_OF_SNAPSHOT
        async for change in changes:
            yield change
