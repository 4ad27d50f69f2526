"""A tracker that has just begun: what happens while it looks for the first time is not missed."""

import asyncio
from contextlib import aclosing

from job_tracker.backends.base import Watch
from job_tracker.backends.fake import FakeBackend
from job_tracker.domain.job import JobState
from tests.integration.tracker.conftest import Service


class SlowBackend(FakeBackend):
    """One whose first look takes until it is told to go on."""

    def __init__(self, service: Service) -> None:
        super().__init__(service.world)
        self.go_on = asyncio.Event()

    async def watch(self) -> Watch:
        await self.go_on.wait()
        async with aclosing(super().watch()) as changes:
            async for change in changes:
                yield change


async def test_a_job_that_is_admitted_during_the_first_look_is_launched_after_it(service: Service) -> None:
    await service.stop()
    slow = SlowBackend(service)
    service.backend = slow
    await service.start()
    job = await service.submit({"RUN_SECONDS": "0"})
    async with asyncio.timeout(5):
        await service.reaches(job.id, JobState.LAUNCHING)
        slow.go_on.set()
        await service.reaches(job.id, JobState.SUCCEEDED)
