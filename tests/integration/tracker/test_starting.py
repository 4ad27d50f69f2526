"""A tracker that has just begun: what happens while it looks for the first time is not missed."""

import asyncio
from collections.abc import Mapping

from job_tracker.backends.base import Observation
from job_tracker.backends.fake import FakeBackend
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import JobState
from tests.support.tracked_service import Service


class SlowBackend(FakeBackend):
    """One whose first look takes until it is told to go on."""

    def __init__(self, service: Service) -> None:
        super().__init__(service.world)
        self.go_on = asyncio.Event()

    async def observe(self) -> Mapping[GroupRef, Observation]:
        await self.go_on.wait()
        return await super().observe()


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
