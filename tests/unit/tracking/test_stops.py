"""Failed stops begin again after growing pauses."""

import asyncio
import itertools

import pytest

from job_tracker.backends.base import Observation
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.group import GroupRef
from job_tracker.tracking.stops import Stops

GROUP = GroupRef("a-1", 1, 1)
OTHER = GroupRef("a-2", 2, 1)


@pytest.mark.usefixtures("skipped_time")
async def test_a_failed_stop_begins_again_after_growing_pauses_and_delays_no_other() -> None:
    ended: asyncio.Queue[GroupRef] = asyncio.Queue()
    stops = Stops(ended.put_nowait)
    clock = asyncio.get_running_loop().time
    begun: list[float] = []

    async def fail() -> Observation | None:
        begun.append(clock())
        raise BackendUnavailable("not now")

    async def succeed() -> Observation | None:
        begun.append(clock())
        return None

    for _ in range(4):
        stops.begin(GROUP, fail)
        assert await ended.get() == GROUP
        with pytest.raises(BackendUnavailable):
            stops.outcome(GROUP)
    pauses = [after - before for before, after in itertools.pairwise(begun)]
    for pause, least in zip(pauses, (0.05, 0.1, 0.2), strict=True):
        assert pause >= least * 0.99

    stops.begin(GROUP, succeed)
    stops.begin(OTHER, succeed)
    assert await ended.get() == OTHER
    assert await ended.get() == GROUP
    assert stops.outcome(GROUP) is None
    stops.forget(GROUP)
    before = clock()
    stops.begin(GROUP, succeed)
    await ended.get()
    assert begun[-1] - before < 0.4
    await stops.close()
