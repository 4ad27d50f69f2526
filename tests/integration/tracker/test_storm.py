"""Thousands of queued jobs that are cancelled together."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from job_tracker.common.clock import utc_now
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.job import JobState
from tests.support.jobs import spec

if TYPE_CHECKING:
    from tests.support.tracked_service import Service
else:
    Service = Any

JOBS = 2000
_AT_ONCE = 500


async def in_parts(call: Callable[[int], Awaitable[Any]], numbers: Sequence[int]) -> None:
    for start in range(0, len(numbers), _AT_ONCE):
        await asyncio.gather(*map(call, numbers[start : start + _AT_ONCE]))


async def test_thousands_of_queued_jobs_are_cancelled_while_the_service_answers(service: Service) -> None:
    running = await service.submit({"RUN_SECONDS": "forever"}, instances=4)
    await service.reaches(running.id, JobState.RUNNING)
    await in_parts(lambda _: service.store.submit(spec(), utc_now(), None, 2 * JOBS), range(JOBS))
    last = await service.store.submit(spec(), utc_now(), None, 2 * JOBS)
    passes = service.tracker.passes
    waits: list[float] = []

    async def ask() -> None:
        while True:
            begin = time.monotonic()
            assert (await service.view(last.id)).job.state is JobState.QUEUED
            waits.append(time.monotonic() - begin)
            await asyncio.sleep(0.01)

    asking = asyncio.create_task(ask())
    begin = time.monotonic()
    await in_parts(lambda job_id: service.jobs.cancel(BUILT_IN, job_id), range(running.id + 1, last.id))
    took = time.monotonic() - begin
    asking.cancel()
    await asyncio.wait([asking])
    print(
        f"{JOBS} cancelled in {took:.2f} s; {len(waits)} answers meanwhile, the slowest in {max(waits):.3f} s"
    )
    assert len(waits) > took, "one a second, also on a busy machine"
    # Passes take a bounded share of the time, and changes are collected between them. The longest pause
    # between passes is 1 s, so on a slow machine there is about one pass a second.
    assert service.tracker.passes - passes < JOBS / 20 + took
    await service.jobs.cancel(BUILT_IN, running.id)
    await service.reaches(last.id, JobState.SUCCEEDED)
    assert await service.store.queued_by_queue() == {}
