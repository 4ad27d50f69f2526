"""Watches of backends that have a look at everything, and a feed of changes."""

from collections.abc import Awaitable, Callable, Mapping

from job_tracker.backends.base import Mark, Observation, Watch
from job_tracker.common.broadcast import Broadcast
from job_tracker.domain.group import GroupRef


async def watched(
    look: Callable[[], Awaitable[Mapping[GroupRef, Observation]]], feed: Broadcast[GroupRef, Observation]
) -> Watch:
    """Watch the groups that `look` finds: see Backend.watch.

    Changes are those after the look: one from before it would bring back a group that was stopped since.
    So `look` must not wait for anything between its last glance and its return.
    """
    found = await look()
    with feed.subscribe() as changes:
        for each in found.items():
            yield each
        yield Mark.END_OF_SNAPSHOT
        async for change in changes:
            yield change
