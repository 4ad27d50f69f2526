"""Without room for a launch, jobs do not fail but wait, and no other job is admitted."""

from typing import TYPE_CHECKING, Any

import pytest

from job_tracker.backends.base import Observation
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.errors import NoRoom
from job_tracker.domain.job import Job, JobState

if TYPE_CHECKING:
    from tests.support.tracked_service import Service
else:
    Service = Any

FULL = "the disk is full; free some space"


class Room:
    """Launches of the fake backend, with or without room."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_there = False
        self._launch = service.backend.launch
        monkeypatch.setattr(service.backend, "launch", self.launch)

    async def launch(self, job: Job) -> Observation:
        if not self.is_there:
            raise NoRoom(FULL)
        return await self._launch(job)


async def test_jobs_wait_until_there_is_room_with_a_note(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(service, monkeypatch)
    jobs = [await service.submit() for _ in range(12)]
    waiting = await service.until(jobs[0].id, lambda job: bool(job.waits_for))
    assert (waiting.state, waiting.waits_for) == (JobState.LAUNCHING, FULL)
    states = [(await service.view(job.id)).job.state for job in jobs]
    assert states.count(JobState.LAUNCHING) <= 4
    assert set(states) == {JobState.LAUNCHING, JobState.QUEUED}
    room.is_there = True
    for job in jobs:
        ended = await service.reaches(job.id, JobState.SUCCEEDED)
        assert ended.attempt == 1
        assert [group.job_id for group in service.world.launches].count(job.id) == 1


async def test_a_job_that_waits_for_room_can_be_cancelled_and_the_next_is_tried(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(service, monkeypatch)
    first = await service.submit(instances=4)
    await service.until(first.id, lambda job: bool(job.waits_for))
    second, third = await service.submit(), await service.submit()
    await service.jobs.cancel(BUILT_IN, first.id)
    await service.reaches(first.id, JobState.CANCELLED)
    await service.until(second.id, lambda job: bool(job.waits_for))
    assert (await service.view(third.id)).job.state is JobState.QUEUED
    room.is_there = True
    await service.reaches(second.id, JobState.SUCCEEDED)
    await service.reaches(third.id, JobState.SUCCEEDED)
