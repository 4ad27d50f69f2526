"""Order and capacity of the queue, before and after a restart."""

from typing import TYPE_CHECKING, Any

from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.job import JobState
from job_tracker.jobs import Jobs
from job_tracker.store.sqlite import SqliteStore
from tests.support.jobs import NOON

if TYPE_CHECKING:
    from tests.support.tracked_service import Service
else:
    Service = Any

FOREVER = {"RUN_SECONDS": "forever"}


async def test_jobs_run_in_the_order_of_their_submission(service: Service) -> None:
    jobs = [await service.submit({"RUN_SECONDS": "0.01"}, instances=4) for _ in range(8)]
    await service.reaches(jobs[-1].id, JobState.SUCCEEDED)
    assert [group.job_id for group in service.world.launches] == [job.id for job in jobs]


async def test_no_more_instances_run_than_the_capacity(service: Service) -> None:
    sizes = [1, 3, 2, 2, 4, 1, 1, 3]
    jobs = [await service.submit(FOREVER, instances=size) for size in sizes]
    for job in jobs:
        await service.reaches(job.id, JobState.RUNNING)
        assert sum(len(group.ranks) for group in service.world.live.values()) <= 4
        await service.jobs.cancel(BUILT_IN, job.id)
        await service.reaches(job.id, JobState.CANCELLED)


async def test_a_large_job_at_the_head_is_not_overtaken(service: Service) -> None:
    running = await service.submit(FOREVER)
    await service.reaches(running.id, JobState.RUNNING)
    large, small = await service.submit(FOREVER, instances=4), await service.submit()
    assert (await service.view(small.id)).position == 1
    await service.jobs.cancel(BUILT_IN, running.id)
    await service.reaches(large.id, JobState.RUNNING)
    assert (await service.view(small.id)).job.state is JobState.QUEUED
    await service.jobs.cancel(BUILT_IN, large.id)
    await service.reaches(small.id, JobState.SUCCEEDED)


async def test_a_watcher_of_a_queued_job_sees_its_position_change(service: Service) -> None:
    running = await service.submit(FOREVER, instances=4)
    await service.reaches(running.id, JobState.RUNNING)
    before, watched = [await service.submit(FOREVER, instances=4) for _ in range(2)]
    seen = []
    async for view in service.jobs.watch(BUILT_IN, watched.id):
        seen.append((view.job.state, view.position))
        if view.job.state is JobState.RUNNING:
            await service.jobs.cancel(BUILT_IN, watched.id)
        elif view.position == 1:
            await service.jobs.cancel(BUILT_IN, before.id)
        elif view.job.state is JobState.QUEUED:
            await service.jobs.cancel(BUILT_IN, running.id)
    assert seen[:2] == [(JobState.QUEUED, 1), (JobState.QUEUED, 0)]
    assert seen[-1] == (JobState.CANCELLED, 0)


async def test_jobs_of_unknown_length_overtake_a_large_one_at_most_so_many_times(service: Service) -> None:
    service.overtake_limit = 2
    await service.restart()
    running = await service.submit(FOREVER)
    await service.reaches(running.id, JobState.RUNNING)
    large = await service.submit(FOREVER, instances=4)
    small = [await service.submit() for _ in range(3)]
    for job in small[:2]:
        await service.reaches(job.id, JobState.SUCCEEDED)
    await service.jobs.cancel(BUILT_IN, running.id)
    await service.reaches(large.id, JobState.RUNNING)
    assert (await service.view(small[2].id)).job.state is JobState.QUEUED


async def test_a_job_that_no_longer_fits_waits_and_delays_no_other(service: Service) -> None:
    running = await service.submit(FOREVER)
    await service.reaches(running.id, JobState.RUNNING)
    large, small = await service.submit(instances=4), await service.submit()
    service.options["capacity"] = 2
    await service.restart()
    await service.reaches(small.id, JobState.SUCCEEDED)
    assert (await service.view(large.id)).job.state is JobState.QUEUED


async def test_after_the_capacity_has_shrunk_what_runs_goes_on_and_nothing_starts_beyond_it(
    service: Service,
) -> None:
    running = [await service.submit(FOREVER, instances=2) for _ in range(2)]
    for job in running:
        await service.reaches(job.id, JobState.RUNNING)
    service.options["capacity"] = 3
    await service.restart()
    waiting = await service.submit(FOREVER)
    await service.jobs.cancel(BUILT_IN, running[0].id)
    await service.reaches(waiting.id, JobState.RUNNING)
    last = await service.submit(FOREVER)
    await service.jobs.cancel(BUILT_IN, waiting.id)
    await service.reaches(last.id, JobState.RUNNING)
    started = (await service.view(waiting.id)).job.history[1].at
    first = (await service.view(running[0].id)).job
    assert first.finished_at is not None
    assert started >= first.finished_at, "beside both, there was not enough capacity"
    assert (await service.view(running[1].id)).job.attempt == 1
    assert [group.job_id for group in service.world.launches] == [1, 2, 3, 4]


async def test_running_groups_are_adopted_after_a_restart_and_none_is_duplicated(service: Service) -> None:
    jobs = [await service.submit(FOREVER, instances=2) for _ in range(3)]
    for job in jobs[:2]:
        await service.reaches(job.id, JobState.RUNNING)
    await service.restart()
    for job in jobs[:2]:
        found = (await service.view(job.id)).job
        assert found.state is JobState.RUNNING
        service.world.end_rank(found.group, 0, 0)
        service.world.end_rank(found.group, 1, 0)
        await service.reaches(job.id, JobState.SUCCEEDED)
    await service.reaches(jobs[2].id, JobState.RUNNING)
    assert [group.job_id for group in service.world.launches] == [1, 2, 3]


async def test_a_job_that_was_about_to_be_launched_is_launched_after_a_restart(service: Service) -> None:
    job = await service.submit()
    await service.stop()
    store = await SqliteStore.open(service.folder / "jobs.db")
    current = await store.get(job.id)
    if current.state is JobState.QUEUED:
        await store.update(current.admitted(NOON))  # the intent is written, but nothing is started
    await store.close()
    await service.start()
    await service.reaches(job.id, JobState.SUCCEEDED)
    assert len(service.world.launches) == 1


async def test_a_group_that_was_about_to_be_stopped_is_stopped_after_a_restart(service: Service) -> None:
    job = await service.reaches((await service.submit(FOREVER)).id, JobState.RUNNING)
    await service.stop()
    service.store = await SqliteStore.open(service.folder / "jobs.db")
    jobs = Jobs(service.store, None, None, None, max_queued=1)  # type: ignore[arg-type]
    await jobs.cancel(BUILT_IN, job.id)
    await service.store.close()
    await service.start()
    await service.reaches(job.id, JobState.CANCELLED)
    assert service.world.live == {}
