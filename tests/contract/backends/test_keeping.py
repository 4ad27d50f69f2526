"""The contract of Backend: how long the objects of a stopped group are kept."""

import asyncio
from datetime import timedelta

import pytest

from job_tracker.backends.base import Backend
from job_tracker.domain.errors import LogsNotFound
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job
from tests.support.backends import World, groups_of, seen, started, text_of
from tests.support.jobs import NOON, job

GRACE = timedelta(seconds=5)
LATER = NOON + timedelta(hours=1)
FAILS = {"EXIT_CODE": "3", "FAIL_RANK": "1", "PRINT": "hello"}


async def run_to_end(backend: Backend, of: Job) -> None:
    await backend.launch(of)
    await seen(backend, of.group, lambda o: o.has_ended)


async def test_kept_objects_are_not_a_group(world: World) -> None:
    backend = world.open()
    await run_to_end(backend, job(FAILS, instances=2))
    end = await backend.stop(job().group, GRACE, LATER)
    assert end is not None
    assert [rank.phase for rank in end.statuses] == [Phase.SUCCEEDED, Phase.FAILED]
    assert await world.kept() == {job().group.name}
    for each in (backend, world.open()):
        assert await groups_of(each) == {}
        assert await each.stop(job().group, GRACE, LATER) is None


async def test_kept_objects_are_removed_after_their_time_and_logs_stay(world: World) -> None:
    backend = world.open()
    await run_to_end(backend, job(FAILS, instances=2))
    await backend.stop(job().group, GRACE, LATER)
    await backend.sweep(LATER - timedelta(seconds=1))
    assert await world.kept() == {job().group.name}
    for _ in range(2):
        await backend.sweep(LATER)
        assert await world.kept() == set()
    assert await text_of(backend.logs(job().group, 1)) == "hello\n"


async def test_another_service_removes_kept_objects(world: World) -> None:
    first = world.open()
    await run_to_end(first, job(FAILS, instances=2))
    await first.stop(job().group, GRACE, LATER)
    await first.close()
    await world.open().sweep(LATER)
    assert await world.kept() == set()


@pytest.mark.parametrize("sweeps", [False, True])
async def test_objects_and_logs_of_a_forgotten_group_are_removed_at_once(world: World, sweeps: bool) -> None:
    first = world.open()
    await run_to_end(first, job(FAILS, instances=2))
    await first.stop(job().group, GRACE, LATER)
    other = world.open()
    if sweeps:
        await other.sweep(NOON)
    await other.sweep(NOON, [job().group])
    assert await world.kept() == set()
    with pytest.raises(LogsNotFound):
        await text_of(other.logs(job().group, 0))


async def test_nothing_is_kept_by_default(world: World) -> None:
    backend = world.open()
    await run_to_end(backend, job(FAILS, instances=2))
    await backend.stop(job().group, GRACE)
    assert await world.kept() == set()


async def test_a_running_group_that_is_to_be_kept_is_ended(world: World) -> None:
    backend = world.open()
    await started(backend, job({"RUN_SECONDS": "forever"}, instances=2))
    end = await backend.stop(job().group, GRACE, LATER)
    assert end is not None
    assert [rank.phase for rank in end.statuses] == [Phase.STOPPED] * 2
    assert await groups_of(world.open()) == {}


async def test_a_sweep_leaves_live_groups_alone(world: World) -> None:
    backend = world.open()
    asked = job({"RUN_SECONDS": "forever"}, instances=2)
    running = await started(backend, asked)
    await backend.sweep(LATER)
    assert await groups_of(backend) == {job().group: running}


async def test_concurrent_stops_and_sweeps_keep_the_objects_once(world: World) -> None:
    backend = world.open()
    await run_to_end(backend, job(FAILS, instances=2))
    await asyncio.gather(
        *(backend.stop(job().group, GRACE, LATER) for _ in range(3)),
        *(backend.sweep(NOON) for _ in range(3)),
    )
    assert await world.kept() == {job().group.name}
    await backend.sweep(LATER)
    assert await world.kept() == set()
    assert await text_of(backend.logs(job().group, 1)) == "hello\n"


async def test_the_next_attempt_runs_beside_a_kept_one(world: World) -> None:
    backend = world.open()
    first, second = (job({**FAILS, "PRINT": f"attempt {n}"}, attempt=n, instances=2) for n in (1, 2))
    await run_to_end(backend, first)
    await backend.stop(first.group, GRACE, LATER)
    await run_to_end(backend, second)
    await backend.stop(second.group, GRACE, LATER)
    assert await world.kept() == {first.group.name, second.group.name}
    await backend.sweep(NOON, [first.group])
    assert await world.kept() == {second.group.name}
