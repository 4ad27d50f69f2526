"""A stop takes as long as the grace of the processes. Other groups are launched and ended meanwhile."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from job_tracker.backends.base import Observation
from job_tracker.common.clock import utc_now
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import JobState

if TYPE_CHECKING:
    from tests.support.tracked_service import Service
else:
    Service = Any

FOREVER = {"RUN_SECONDS": "forever"}
MORE_THAN_WORKERS = 70


async def test_a_job_runs_while_more_groups_are_stopped_than_there_are_workers(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.options["capacity"] = MORE_THAN_WORKERS + 1
    await service.restart()
    stop, graces_are_over = service.backend.stop, asyncio.Event()

    async def stop_late(group: GroupRef, *args: Any) -> Observation | None:
        if group.job_id <= MORE_THAN_WORKERS:
            await graces_are_over.wait()
        return await stop(group, *args)

    monkeypatch.setattr(service.backend, "stop", stop_late)
    stubborn = [await service.submit(FOREVER) for _ in range(MORE_THAN_WORKERS)]
    for job in stubborn:
        await service.reaches(job.id, JobState.RUNNING)
        await service.jobs.cancel(BUILT_IN, job.id)
    quick = await service.submit()
    await service.reaches(quick.id, JobState.SUCCEEDED)
    assert (await service.view(stubborn[0].id)).job.state is JobState.RUNNING
    graces_are_over.set()
    for job in stubborn:
        await service.reaches(job.id, JobState.CANCELLED)


async def test_the_next_tracker_completes_an_interrupted_stop(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def never_ends(*args: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    job = await service.submit(FOREVER)
    await service.reaches(job.id, JobState.RUNNING)
    with monkeypatch.context() as patched:
        patched.setattr(service.backend, "stop", never_ends)
        await service.jobs.cancel(BUILT_IN, job.id)
        await begun.wait()
        await service.stop()
    await service.start()
    await service.reaches(job.id, JobState.CANCELLED)


async def test_a_launch_waits_for_the_stop_of_a_stray_of_the_same_name(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = await service.submit(FOREVER, instances=4)
    await service.reaches(holder.id, JobState.RUNNING)
    job = await service.submit(FOREVER)
    admitted = job.admitted(utc_now())
    # As after a restore, or the loss of the last second: the stored job is queued, but already runs.
    await service.backend.launch(admitted)
    stop, begun, may_go_on, done = service.backend.stop, asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stop_held(group: GroupRef, *args: Any) -> Observation | None:
        if group != admitted.group:
            return await stop(group, *args)
        begun.set()
        await may_go_on.wait()
        seen = await stop(group, *args)
        done.set()
        return seen

    monkeypatch.setattr(service.backend, "stop", stop_held)
    await service.restart()
    await begun.wait()
    await service.jobs.cancel(BUILT_IN, holder.id)
    await service.until(job.id, lambda job: job.state.is_live)
    may_go_on.set()
    await service.reaches(job.id, JobState.RUNNING)
    await done.wait()
    assert admitted.group in service.world.live
    assert service.world.launches.count(admitted.group) == 2
