"""Outages and restarts of the engine and of the service."""

import asyncio
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from job_tracker.backends.docker import stopping
from job_tracker.backends.docker.stopping import Stopper
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.group import Phase
from tests.support.backends import DockerGroups, groups_of, printed, seen, started, text_of
from tests.support.jobs import NOON, job

FOREVER = {"RUN_SECONDS": "forever", "PRINT": "up"}
SHORT = timedelta(seconds=1)
IGNORES = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(1000)"


@pytest.fixture
def ours(world: DockerGroups) -> DockerGroups:
    if not world.engine.is_ours:
        pytest.skip("the tests did not start this Docker engine, so they must not stop it")
    return world


async def test_ranks_of_a_restarted_engine_have_the_category_killed(ours: DockerGroups) -> None:
    backend = ours.open()
    await started(backend, job(FOREVER, instances=2))
    await printed(backend, job().group)
    await asyncio.to_thread(ours.engine.stop)
    with pytest.raises(BackendUnavailable):
        await backend.launch(job(FOREVER, job_id=2))
    with pytest.raises(BackendUnavailable):
        await backend.stop(job().group, SHORT)
    await asyncio.to_thread(ours.engine.start)
    end = await seen(backend, job().group, lambda o: o.has_ended)
    assert end.first_failure is not None
    assert (end.first_failure.category, end.first_failure.retryable) == (Category.KILLED, True)
    await backend.stop(job().group, SHORT)
    assert await text_of(backend.logs(job().group, 0)) == "up\n"
    await started(backend, job(FOREVER, attempt=2))
    await backend.stop(job(attempt=2).group, SHORT)
    assert ours.engine.left() == []


async def test_a_stop_during_which_the_engine_freezes_is_repeated_and_loses_no_log(
    ours: DockerGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_containers = Stopper._end_containers
    backend = ours.open()
    client = backend._client
    asked = job({"PRINT": "hello"})
    await backend.launch(asked)
    await seen(backend, asked.group, lambda group: group.has_ended)
    with ExitStack() as frozen, monkeypatch.context() as patched:

        async def then_frozen(*arguments: Any) -> None:
            await end_containers(*arguments)
            frozen.enter_context(ours.engine.paused())

        async def removed(*_: Any) -> None:
            pytest.fail("the frozen engine may remove a container later, and the log has not been read")

        patched.setattr(Stopper, "_end_containers", then_frozen)
        patched.setattr(stopping, "_LOG_SECONDS", 1.0)
        patched.setattr(client, "_seconds", 1)
        patched.setattr(client, "remove", removed)
        with pytest.raises(BackendUnavailable):
            await backend.stop(asked.group, SHORT)
    await backend.stop(asked.group, SHORT)
    assert await text_of(backend.logs(asked.group, 0)) == "hello\n"
    assert ours.engine.left() == []


async def test_a_service_may_start_before_its_engine(ours: DockerGroups) -> None:
    await asyncio.to_thread(ours.engine.stop)
    backend = ours.open()
    await backend.connect()
    with pytest.raises(BackendUnavailable):
        await groups_of(backend)
    await asyncio.to_thread(ours.engine.start)
    assert await groups_of(backend) == {}


@pytest.mark.parametrize("keeps", [False, True])
async def test_a_stop_that_a_crash_interrupts_is_not_a_failure(world: DockerGroups, keeps: bool) -> None:
    world.add("program", "python3", "-c", IGNORES)
    first = world.open()
    await started(first, job(instances=3))
    for rank in range(3):
        await printed(first, job().group, rank)
    until = NOON + timedelta(days=10_000) if keeps else None
    stop = asyncio.create_task(first.stop(job().group, timedelta(seconds=30), until))
    while not any(name.endswith("-ending") for name in await asyncio.to_thread(world.engine.left)):
        await asyncio.sleep(0.02)
    await first.close()
    with pytest.raises(asyncio.CancelledError):
        await stop
    # The interrupted stop would have done the same.
    await asyncio.to_thread(world.engine.docker, "kill", "program-1-1-worker")
    second = world.open()
    found = (await groups_of(second))[job().group]
    assert found.first_failure is None
    end = await second.stop(job().group, SHORT)
    assert end is not None
    assert [rank.phase for rank in end.statuses] == [Phase.STOPPED] * 3
    assert await text_of(second.logs(job().group, 2)) == "up\n"
    assert world.engine.left() == []


async def test_a_rank_that_failed_before_an_interrupted_stop_has_failed(world: DockerGroups) -> None:
    ends = "import os, sys\nif os.environ['RANK'] == '1': sys.exit(3)\n"
    world.add("program", "python3", "-c", ends + IGNORES)
    first = world.open()
    await first.launch(job(instances=2))
    await seen(first, job().group, lambda o: o.first_failure is not None)
    await printed(first, job().group, 0)
    stop = asyncio.create_task(first.stop(job().group, timedelta(seconds=30)))
    while not any(name.endswith("-ending") for name in await asyncio.to_thread(world.engine.left)):
        await asyncio.sleep(0.02)
    await first.close()
    await asyncio.gather(stop, return_exceptions=True)
    second = world.open()
    end = await second.stop(job().group, timedelta(0))
    assert end is not None
    assert [rank.phase for rank in end.statuses] == [Phase.STOPPED, Phase.FAILED]


async def test_a_sweep_removes_the_rest_of_interrupted_stops(world: DockerGroups) -> None:
    first = world.open()
    await started(first, job(FOREVER, instances=2))
    await first.stop(job().group, SHORT, NOON)
    label = [f"--label={key}={value}" for key, value in world.plan(job(instances=2)).labels.items()]
    world.engine.docker("network", "create", *label, "program-1")
    world.engine.docker("volume", "create", *label, "program-1-ending")
    await world.open().sweep(datetime.now(UTC))
    assert world.engine.left() == []


async def test_a_log_can_be_read_from_any_of_its_lines_on(world: DockerGroups) -> None:
    count = "import time\nfor i in range(20):\n    print(i, flush=True); time.sleep(0.05)"
    world.add("program", "python3", "-c", count)
    backend = world.open()
    await started(backend, job())
    following = asyncio.create_task(text_of(backend.logs(job().group, 0, follow=True)))
    assert (await following).split() == [str(number) for number in range(20)]
    first = [piece async for piece in backend.logs(job().group, 0)]
    middle = first[9][:30]
    assert (await text_of(backend.logs(job().group, 0, after=middle))).split()[0] == "10"
