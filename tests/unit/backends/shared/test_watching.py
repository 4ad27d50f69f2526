"""A watch yields no change that is older than its snapshot."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

import pytest

from job_tracker.backends.base import Mark, Observation, RankObservation, Watch, snapshot_of
from job_tracker.backends.shared.watching import watched
from job_tracker.common.broadcast import Broadcast
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.group import GroupRef, Phase, RankStatus

FIRST, SECOND = (GroupRef(f"program-{number}", number, 1) for number in (1, 2))
RUNNING, ENDED = (
    Observation((RankObservation(RankStatus(0, phase)),)) for phase in (Phase.RUNNING, Phase.SUCCEEDED)
)


async def test_changes_during_the_look_are_left_out() -> None:
    feed: Broadcast[GroupRef, Observation] = Broadcast()

    async def look() -> Mapping[GroupRef, Observation]:
        feed.publish(FIRST, RUNNING)
        await asyncio.sleep(0)
        return {SECOND: RUNNING}  # the first group was stopped meanwhile

    async with aclosing(watched(look, feed)) as watch:
        assert await snapshot_of(watch) == {SECOND: RUNNING}
        feed.publish(SECOND, ENDED)
        assert await anext(watch) == (SECOND, ENDED)


async def test_changes_while_the_snapshot_is_read_come_after_it() -> None:
    feed: Broadcast[GroupRef, Observation] = Broadcast()

    async def look() -> Mapping[GroupRef, Observation]:
        return {FIRST: RUNNING, SECOND: RUNNING}

    async with aclosing(watched(look, feed)) as watch:
        assert await anext(watch) == (FIRST, RUNNING)
        feed.publish(FIRST, ENDED)
        rest = [await anext(watch) for _ in range(3)]
    assert rest == [(SECOND, RUNNING), Mark.END_OF_SNAPSHOT, (FIRST, ENDED)]


async def test_a_watch_that_ends_before_its_mark_has_no_snapshot() -> None:
    async def cut_short() -> Watch:
        yield FIRST, RUNNING

    with pytest.raises(BackendUnavailable):
        await snapshot_of(cut_short())
