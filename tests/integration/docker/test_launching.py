"""Launches that are interrupted or refused, or that find existing objects."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.docker.client import DockerClient
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import Phase
from tests.support.backends import DockerGroups, groups_of, printed, started, text_of
from tests.support.jobs import NOON, job

FOREVER = {"RUN_SECONDS": "forever", "PRINT": "up"}
SHORT = timedelta(seconds=1)


@pytest.mark.parametrize("made", [(0,), (0, 2), (0, 1, 2)])
async def test_an_interrupted_launch_is_completed_by_the_next(
    world: DockerGroups, made: tuple[int, ...]
) -> None:
    asked = job(FOREVER, instances=3)
    plan = world.plan(asked)
    client = DockerClient(world.engine.url)
    master, *_ = [
        await client.create_container(plan.containers[rank].name, plan.containers[rank].request)
        for rank in made
    ]
    await client.close()
    second = world.open()
    found = (await groups_of(second))[job().group]
    assert found.first_failure is None  # a container that does not exist yet was not removed
    running = await started(second, asked)
    assert [rank.phase for rank in running.statuses] == [Phase.RUNNING] * 3
    assert world.engine.inspect("program-1-master")[0]["Id"] == master
    await second.stop(job().group, SHORT)
    assert world.engine.left() == []


async def test_a_cancelled_launch_is_completed_by_the_next(world: DockerGroups) -> None:
    backend = world.open()
    await groups_of(backend)
    asked = job(FOREVER, instances=3)
    for milliseconds in (2, 10, 30, 100, 300):
        launching = asyncio.create_task(backend.launch(asked))
        await asyncio.sleep(milliseconds / 1000)
        launching.cancel()
        await asyncio.gather(launching, return_exceptions=True)
    running = await started(backend, asked)
    assert [rank.phase for rank in running.statuses] == [Phase.RUNNING] * 3
    for rank in range(3):
        await printed(backend, job().group, rank)
        assert await text_of(backend.logs(job().group, rank)) == "up\n", "it ran twice"
    await backend.stop(job().group, SHORT)
    assert world.engine.left() == []


async def test_containers_of_another_plan_are_replaced(world: DockerGroups) -> None:
    first = world.open()
    lost = replace(job(FOREVER, instances=2), submitted_at=NOON - timedelta(days=1))
    await started(first, lost)
    names = ("program-1-master", "program-1-1-worker")
    before = {each["Id"] for each in world.engine.inspect(*names)}
    second = world.open()
    running = await started(second, job(FOREVER, instances=2))
    assert [rank.phase for rank in running.statuses] == [Phase.RUNNING] * 2
    assert not before & {each["Id"] for each in world.engine.inspect(*names)}
    await second.stop(job().group, SHORT)
    assert world.engine.left() == []


@pytest.mark.parametrize("removed", ["program-1-master", "program-1-1-worker"])
async def test_a_removed_container_of_a_started_group_is_not_created_again(
    world: DockerGroups, removed: str
) -> None:
    first, asked = world.open(), job(FOREVER, instances=2)
    await started(first, asked)
    await first.close()
    world.engine.docker("rm", "--force", removed)
    second = world.open()
    with pytest.raises(LaunchFailed) as failed:
        await second.launch(asked)
    why = failed.value.diagnosis
    assert (why.category, why.retryable) == (Category.CONTAINER_REMOVED, True)
    assert removed not in world.engine.left()
    await second.stop(job().group, SHORT)
    assert world.engine.left() == []


async def test_a_group_of_an_earlier_configuration_is_adopted_unchanged(world: DockerGroups) -> None:
    first, asked = world.open(), job(FOREVER, instances=2)
    await started(first, asked)
    names = ("program-1-master", "program-1-1-worker")
    before = {each["Id"] for each in world.engine.inspect(*names)}
    world.add("program", "another", "command")
    second = world.open()
    await second.launch(asked)
    assert {each["Id"] for each in world.engine.inspect(*names)} == before
    await second.stop(job().group, SHORT)
    assert world.engine.left() == []


async def test_kept_containers_are_replaced_by_a_group_with_the_same_name(world: DockerGroups) -> None:
    first = world.open()
    lost = replace(job({"EXIT_CODE": "3"}), submitted_at=NOON - timedelta(days=1))
    await first.launch(lost)
    await text_of(first.logs(job().group, 0, follow=True))
    await first.stop(job().group, SHORT, NOON + timedelta(days=10_000))
    second = world.open()
    running = await started(second, job(FOREVER))
    assert running.statuses[0].phase is Phase.RUNNING
    await second.stop(job().group, SHORT)
    assert world.engine.left() == []


@pytest.mark.parametrize("name", ["program-1-master", "program-1-2-worker"])
async def test_a_foreign_container_with_a_name_of_the_group_is_left_alone(
    world: DockerGroups, name: str
) -> None:
    engine = world.engine
    image: Any = world.algorithms["program"].recipes["docker"]
    foreign = engine.docker("create", "--name", name, image.image).strip()
    try:
        backend = world.open()
        with pytest.raises(LaunchFailed) as refused:
            await backend.launch(job(FOREVER, instances=3))
        assert refused.value.diagnosis.category is Category.NAME_TAKEN
        assert name in refused.value.diagnosis.summary
        await backend.stop(job().group, SHORT)
        assert engine.left() == []
        assert engine.inspect(name)[0]["Id"] == foreign
    finally:
        engine.docker("rm", foreign)


async def test_a_foreign_network_is_left_alone(world: DockerGroups) -> None:
    network = world.engine.docker("network", "create", "program-1").strip()
    try:
        backend = world.open()
        with pytest.raises(LaunchFailed) as refused:
            await backend.launch(job(FOREVER, instances=2))
        assert refused.value.diagnosis.category is Category.NAME_TAKEN
        await backend.stop(job().group, SHORT)
        assert world.engine.left() == []
    finally:
        world.engine.docker("network", "rm", network)


async def test_ranks_find_each_other_by_name_and_secrets_are_not_in_the_plan(
    world: DockerGroups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    monkeypatch.setenv("SITE", "here")
    look = "import os, socket\n"
    look += "print(os.environ['KEY'], os.environ['SITE'], os.environ['MASTER_ADDR'], flush=True)\n"
    look += "print(socket.gethostbyname('program-1-master') != '', os.getuid(), flush=True)\n"
    look += "open(os.environ['HOME'] + '/x', 'w').close()\n"
    look += "try:\n    open('/x', 'w')\nexcept OSError as error:\n    print(error.strerror, flush=True)\n"
    look += "import time; time.sleep(1000)"
    world.add("program", "python3", "-c", look, secret_files={"KEY": str(tmp_path / "key")}, inherit=["SITE"])
    backend = world.open()
    asked = job(instances=3)
    plan = world.plan(asked)
    assert "s3cret" not in repr(plan)
    await started(backend, asked)
    for rank in range(3):
        text = ""
        async for piece in backend.logs(job().group, rank, follow=True):
            text += "".join(line.split(" ", 2)[2] for line in piece.decode().splitlines(keepends=True))
            if text.count("\n") == 3:
                break
        assert text == "s3cret here program-1-master\nTrue 10001\nRead-only file system\n"
    await backend.stop(job().group, SHORT)
    assert world.engine.left() == []


async def test_connecting_to_a_stopped_engine_is_no_error(tmp_path: Path) -> None:
    client = DockerClient(f"unix://{tmp_path}/missing.sock")
    await client.connect()  # it may start later
    await client.close()
