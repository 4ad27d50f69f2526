"""The contract of Backend: launch and stop."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from job_tracker.backends.base import Observation
from job_tracker.domain.allocation import Allocation
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import GroupRef, Phase
from tests.support.backends import FakeGroups, World, groups_of, printed, seen, started, text_of
from tests.support.jobs import NOON, job

FOREVER = {"RUN_SECONDS": "forever"}
GRACE = timedelta(seconds=5)


def phases(observation: object) -> list[Phase]:
    return [rank.status.phase for rank in observation.ranks]  # type: ignore[attr-defined]


async def test_a_launched_group_is_observed_with_every_rank_running(world: World) -> None:
    backend = world.open()
    asked = job(FOREVER, instances=3)
    running = await started(backend, asked)
    assert phases(running) == [Phase.RUNNING] * 3
    assert [rank.status.rank for rank in running.ranks] == [0, 1, 2]
    assert await groups_of(backend) == {job().group: running}


async def test_a_launch_returns_the_state_of_every_rank(world: World) -> None:
    backend = world.open()
    launched = await backend.launch(job(FOREVER, instances=3))
    assert [rank.status.rank for rank in launched.ranks] == [0, 1, 2]
    assert set(phases(launched)) <= {Phase.PENDING, Phase.RUNNING}


async def test_an_elastic_attempt_has_as_many_ranks_as_were_allocated(world: World) -> None:
    backend = world.open()
    asked = job({**FOREVER, "PRINT_VARIABLE": "WORLD_SIZE"}, instances=4)
    allocated = replace(asked, allocation=Allocation(trainers=2)).as_allocated
    running = await started(backend, allocated)
    assert phases(running) == [Phase.RUNNING] * 2
    again = await world.open().launch(allocated)
    assert phases(again) == [Phase.RUNNING] * 2
    if isinstance(world, FakeGroups):
        return  # the fake backend simulates no environment
    assert [await printed(backend, asked.group, rank, lines=2) for rank in range(2)] == ["\n2\n"] * 2


async def test_the_end_of_a_group_is_watched(world: World) -> None:
    backend = world.open()
    await backend.launch(job({"RUN_SECONDS": "0.2"}, instances=2))
    end = await seen(backend, job().group, lambda o: o.has_ended)
    assert phases(end) == [Phase.SUCCEEDED] * 2
    assert [rank.status.exit_code for rank in end.ranks] == [0, 0]
    assert end.first_failure is None


async def test_a_rank_that_fails_is_diagnosed_while_the_others_run_on(world: World) -> None:
    backend = world.open()
    parameters = {"EXIT_CODE": "3", "FAIL_RANK": "1", "RUN_SECONDS": "0.1"}
    await backend.launch(job(parameters, instances=2))
    end = await seen(backend, job().group, lambda o: o.first_failure is not None)
    assert end.first_failure is not None
    assert (end.first_failure.category, end.first_failure.rank) == (Category.CRASHED, 1)
    assert end.first_failure.summary
    assert end.first_failure.resolution
    assert end.ranks[1].status.exit_code == 3
    assert end.ranks[0].diagnosis is None


async def test_a_repeated_launch_adopts_the_running_group(world: World) -> None:
    backend = world.open()
    asked = job({**FOREVER, "PRINT": "started"}, instances=2)
    await started(backend, asked)
    again, at_once = await asyncio.gather(backend.launch(asked), backend.launch(asked))
    assert phases(again) == phases(at_once) == [Phase.RUNNING] * 2
    other = world.open()
    assert phases(await other.launch(asked)) == [Phase.RUNNING] * 2
    await printed(other, job().group)
    await other.stop(job().group, GRACE)
    assert await text_of(other.logs(job().group, 0)) == "started\n"


async def test_a_failed_rank_is_restarted_beside_the_others(world: World) -> None:
    backend = world.open()
    parameters = {"EXIT_CODE": "3", "FAIL_RANK": "1", "RUN_SECONDS": "0.5", "PRINT": "up"}
    asked = job(parameters, instances=2)
    await backend.launch(asked)
    lost = await seen(backend, asked.group, lambda o: o.first_failure is not None)
    again = asked.observed(lost.statuses).restarting(1, _diagnosis(lost), NOON)

    def has_run_again(observation: Observation) -> bool:
        return observation.ranks[1].status.restarts == 1

    await backend.launch(again)
    running = await seen(backend, asked.group, has_run_again)
    assert running.ranks[0].status.restarts == 0
    await world.open().launch(again)  # the instance exists: another launch, as after a crash, changes nothing

    if not isinstance(world, FakeGroups):  # ranks of the fake backend end only if the test ends them
        await seen(backend, asked.group, lambda o: has_run_again(o) and o.first_failure is not None)
        assert await text_of(backend.logs(asked.group, 1)) == "up\nup\n"
    await backend.stop(asked.group, GRACE)
    assert await text_of(backend.logs(asked.group, 0)) == "up\n"
    assert await text_of(world.open().logs(asked.group, 1)) == "up\nup\n"


async def test_a_rank_that_still_runs_is_replaced_beside_the_others(world: World) -> None:
    backend = world.open()
    asked = job({**FOREVER, "PRINT": "up"}, instances=2)
    await started(backend, asked)
    await printed(backend, asked.group, 1)
    before = (await groups_of(backend))[asked.group]
    stalled = Diagnosis(category=Category.STALLED, summary="It stands still.", resolution="Look.", rank=1)
    again = asked.observed(before.statuses).restarting(1, stalled, NOON)

    def has_run_again(observation: Observation) -> bool:
        return observation.ranks[1].status.restarts == 1 and phases(observation) == [Phase.RUNNING] * 2

    await backend.launch(again)
    running = await seen(backend, asked.group, has_run_again)
    assert running.ranks[0].status.restarts == 0
    await world.open().launch(again)  # as after a crash
    while await text_of(backend.logs(asked.group, 1)) != "up\nup\n":
        await asyncio.sleep(0.05)
    await backend.stop(asked.group, GRACE)
    assert await text_of(backend.logs(asked.group, 0)) == "up\n"
    assert await text_of(world.open().logs(asked.group, 1)) == "up\nup\n"


def _diagnosis(observation: Observation) -> Diagnosis:
    assert observation.first_failure is not None
    return observation.first_failure


async def test_concurrent_launches_by_several_services_start_one_group(world: World) -> None:
    backends = [world.open() for _ in range(3)]
    asked = job({**FOREVER, "PRINT": "started"}, instances=2)
    await asyncio.gather(*(backend.launch(asked) for backend in backends))
    for rank in range(2):
        await printed(backends[0], job().group, rank)
    await backends[0].stop(job().group, GRACE)
    for rank in range(2):
        assert await text_of(backends[0].logs(job().group, rank)) == "started\n"


async def test_a_stop_ends_the_group_and_returns_how_its_ranks_ended(world: World) -> None:
    backend = world.open()
    await backend.launch(job(FOREVER, instances=2))
    end = await backend.stop(job().group, GRACE)
    assert end is not None
    assert phases(end) == [Phase.STOPPED] * 2
    assert end.first_failure is None
    assert await groups_of(backend) == {}


async def test_a_stop_does_not_change_how_ended_ranks_ended(world: World) -> None:
    backend = world.open()
    parameters = {"EXIT_CODE": "3", "FAIL_RANK": "1"}
    await backend.launch(job(parameters, instances=2))
    await seen(backend, job().group, lambda o: o.has_ended)
    end = await backend.stop(job().group, GRACE)
    assert end is not None
    assert phases(end) == [Phase.SUCCEEDED, Phase.FAILED]


async def test_a_stop_may_be_repeated_and_the_group_may_be_unknown(world: World) -> None:
    backend = world.open()
    assert await backend.stop(GroupRef("unknown-7", 7, 1), GRACE) is None
    await backend.launch(job(FOREVER))
    await asyncio.gather(*(backend.stop(job().group, GRACE) for _ in range(3)))
    assert await backend.stop(job().group, GRACE) is None


async def test_groups_outlive_the_backend_and_the_next_one_finds_them(world: World) -> None:
    first = world.open()
    running = await started(first, job(FOREVER, instances=2))
    await first.close()
    second = world.open()
    assert await groups_of(second) == {job().group: running}
    await second.stop(job().group, GRACE)
    assert await groups_of(world.open()) == {}


async def test_an_end_without_a_running_service_is_seen_by_the_next(world: World) -> None:
    first = world.open()
    await first.launch(job({"EXIT_CODE": "4", "RUN_SECONDS": "0.3"}))
    await first.close()
    second = world.open()
    end = await seen(second, job().group, lambda o: o.has_ended)
    assert end.ranks[0].status.exit_code == 4
    third = world.open()
    assert await groups_of(third) == {job().group: end}


async def test_each_attempt_of_a_job_is_a_separate_group(world: World) -> None:
    backend = world.open()
    jobs = [job(FOREVER, attempt=attempt) for attempt in (1, 2)]
    for each in jobs:
        await backend.launch(each)
    await backend.stop(jobs[0].group, GRACE)
    assert set(await groups_of(backend)) == {jobs[1].group}


@pytest.mark.parametrize("count", [20])
async def test_many_groups_are_launched_and_stopped_concurrently(world: World, count: int) -> None:
    backend = world.open()
    jobs = [job(FOREVER, job_id=number) for number in range(1, count + 1)]
    await asyncio.gather(*(backend.launch(each) for each in jobs))
    assert set(await groups_of(backend)) == {each.group for each in jobs}
    await asyncio.gather(*(backend.stop(each.group, GRACE) for each in jobs))
    assert await groups_of(backend) == {}
