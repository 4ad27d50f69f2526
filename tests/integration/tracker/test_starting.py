"""A tracker misses nothing during its first look at all groups, or when its watch breaks."""

import asyncio
from contextlib import aclosing
from datetime import timedelta

import pytest

from job_tracker.backends.base import Mark, Watch
from job_tracker.backends.fake import FakeBackend
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.job import JobState
from job_tracker.domain.policies import RetryPolicy
from tests.support.patience import PATIENCE
from tests.support.tracked_service import Service


class BreakingBackend(FakeBackend):
    """A backend whose first watch fails, or ends, after its snapshot, without a change."""

    def __init__(self, service: Service, error: Exception | None) -> None:
        super().__init__(service.world)
        self.watches = 0
        self._error = error

    async def watch(self) -> Watch:
        self.watches += 1
        if self.watches == 1:
            yield Mark.END_OF_SNAPSHOT
            if self._error is None:
                return
            raise self._error
        async with aclosing(super().watch()) as changes:
            async for change in changes:
                yield change


class SlowBackend(FakeBackend):
    """A backend whose first look takes until an event is set."""

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
    async with asyncio.timeout(PATIENCE):
        await service.reaches(job.id, JobState.LAUNCHING)
        slow.go_on.set()
        await service.reaches(job.id, JobState.SUCCEEDED)


@pytest.mark.parametrize("error", [BackendUnavailable("the engine is away"), ValueError("a fault"), None])
async def test_a_broken_watch_is_restarted(service: Service, error: Exception | None) -> None:
    await service.stop()
    service.options["repair_period"] = timedelta(hours=1)
    breaking = BreakingBackend(service, error)
    service.backend = breaking
    await service.start()
    job = await service.submit({"RUN_SECONDS": "0.1"})
    async with asyncio.timeout(PATIENCE):
        await service.reaches(job.id, JobState.SUCCEEDED)
    assert breaking.watches == 2


async def test_a_backoff_that_began_before_the_start_ends_on_time(service: Service) -> None:
    await service.stop()
    service.options["repair_period"] = timedelta(hours=1)  # so that no later look at all jobs ends it
    await service.start()
    longer_than_the_restart = timedelta(seconds=1)
    retry = RetryPolicy(max_attempts=2, backoff=longer_than_the_restart, retry_on=(Category.CRASHED,))
    job = await service.submit({"EXIT_CODE": "1"}, retry=retry)
    await service.reaches(job.id, JobState.BACKOFF)
    await service.restart()
    async with asyncio.timeout(PATIENCE):
        ended = await service.reaches(job.id, JobState.FAILED)
    assert ended.attempt == 2
