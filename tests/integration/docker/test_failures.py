"""Real failures of groups on an engine. None leaves an object there."""

import asyncio
import gc
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.docker.backend import DockerBackend
from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.engine_errors import NotFound
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import Phase
from tests.support.backends import DockerGroups, groups_of, seen, started, text_of
from tests.support.jobs import job
from tests.support.programs import OUT_OF_MEMORY, UNTIL_READ, saves_at_the_notice

FOREVER = {"RUN_SECONDS": "forever"}
SHORT = timedelta(seconds=1)


async def failure_of(backend: DockerBackend, instances: int = 1) -> Diagnosis:
    await backend.launch(job(instances=instances))
    end = await seen(backend, job().group, lambda o: o.first_failure is not None)
    assert end.first_failure is not None
    return end.first_failure


async def refusal(world: DockerGroups, instances: int = 1, **settings: Any) -> Diagnosis:
    backend = world.open(**settings)
    with pytest.raises(LaunchFailed) as refused:
        await backend.launch(job(FOREVER, instances=instances))
    await backend.stop(job().group, SHORT)
    assert await groups_of(backend) == {}
    assert world.engine.left() == []
    return refused.value.diagnosis


async def stop(backend: DockerBackend, grace: timedelta = SHORT) -> list[Phase]:
    end = await backend.stop(job().group, grace)
    assert end is not None
    return [rank.phase for rank in end.statuses]


@pytest.mark.parametrize("pull", ["missing", "always", "never"])
async def test_a_missing_image_fails_the_launch(world: DockerGroups, pull: str) -> None:
    world.add("program", image="127.0.0.1:1/nothing:1")
    diagnosis = await refusal(world, 2, pull=pull)
    assert diagnosis.category is Category.IMAGE_PULL_FAILED
    assert "127.0.0.1:1/nothing:1" in diagnosis.summary


async def test_a_missing_folder_is_in_the_diagnosis(world: DockerGroups) -> None:
    world.add("program", volumes=[{"source": "/no/such/folder", "mount_path": "/data"}])
    diagnosis = await refusal(world, 2)
    assert diagnosis.category is Category.CONTAINER_CONFIG
    assert "/no/such/folder" in diagnosis.detail


async def test_an_unreadable_secret_is_in_the_diagnosis(world: DockerGroups, tmp_path: Path) -> None:
    world.add("program", secret_files={"KEY": str(tmp_path / "key")})
    diagnosis = await refusal(world)
    assert diagnosis.category is Category.CONTAINER_CONFIG
    assert "KEY" in diagnosis.summary


async def test_missing_gpus_fail_the_launch(world: DockerGroups) -> None:
    world.add("program", resources={"nvidia.com/gpu": "1"})
    diagnosis = await refusal(world, 2)
    assert diagnosis.category is Category.CONTAINER_NOT_CREATED
    assert "GPU" in diagnosis.summary


async def test_too_many_cpus_are_refused_with_the_message_of_the_engine(world: DockerGroups) -> None:
    world.add("program", resources={"cpu": "5000"})
    diagnosis = await refusal(world)
    assert diagnosis.category is Category.INVALID_OBJECT
    assert "CPUs" in diagnosis.detail


@pytest.mark.parametrize(
    ("command", "category"),
    [("no-such-program", Category.COMMAND_NOT_FOUND), ("/etc/passwd", Category.COMMAND_NOT_EXECUTABLE)],
)
async def test_a_program_that_cannot_run_is_in_the_diagnosis(
    world: DockerGroups, command: str, category: Category
) -> None:
    world.add("program", command)
    backend = world.open()
    diagnosis = await failure_of(backend)
    assert diagnosis.category is category
    assert command in diagnosis.detail
    assert await stop(backend) == [Phase.FAILED]
    assert world.engine.left() == []


async def test_a_rank_that_exceeds_its_memory_limit_is_out_of_memory(world: DockerGroups) -> None:
    world.add("program", "python3", "-c", OUT_OF_MEMORY, resources={"memory": "64Mi"})
    backend = world.open()
    assert (await failure_of(backend)).category is Category.OUT_OF_MEMORY
    assert await stop(backend) == [Phase.FAILED]
    assert world.engine.left() == []


async def test_a_diagnosis_contains_the_end_of_the_log(world: DockerGroups) -> None:
    program = "import atexit, sys\natexit.register(until_read, 2)\nprint('begin', file=sys.stderr)\n1 / 0"
    world.add("program", "python3", "-c", f"{UNTIL_READ}{program}")
    diagnosis = await failure_of(world.open())
    assert diagnosis.category is Category.CRASHED
    assert diagnosis.detail.startswith("begin\nTraceback")
    assert diagnosis.detail.endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize("rank", [0, 1])
async def test_a_killed_rank_has_the_category_killed(world: DockerGroups, rank: int) -> None:
    backend = world.open()
    asked = job(FOREVER, instances=2)
    plan = world.plan(asked)
    await started(backend, asked)
    await asyncio.to_thread(world.engine.docker, "kill", plan.containers[rank].name)
    end = await seen(backend, job().group, lambda o: o.first_failure is not None)
    assert end.first_failure is not None
    assert (end.first_failure.category, end.first_failure.rank) == (Category.KILLED, rank)
    assert end.statuses[rank].exit_code == 137
    phases = await stop(backend)
    assert (phases[rank], phases[1 - rank]) == (Phase.FAILED, Phase.STOPPED)
    assert world.engine.left() == []


@pytest.mark.parametrize("rank", [0, 1])
async def test_a_container_that_a_user_removes_is_a_failure(world: DockerGroups, rank: int) -> None:
    backend = world.open()
    asked = job(FOREVER, instances=2)
    plan = world.plan(asked)
    await started(backend, asked)
    await asyncio.to_thread(world.engine.docker, "rm", "-f", plan.containers[rank].name)
    end = await seen(backend, job().group, lambda o: o.first_failure is not None)
    assert end.first_failure is not None
    assert (end.first_failure.category, end.first_failure.rank) == (Category.CONTAINER_REMOVED, rank)
    assert (await stop(backend))[rank] is Phase.FAILED
    assert world.engine.left() == []
    assert await groups_of(backend) == {}


async def test_a_paused_rank_has_a_note(world: DockerGroups) -> None:
    backend = world.open()
    await started(backend, job(FOREVER))
    await asyncio.to_thread(world.engine.docker, "pause", "program-1-master")
    paused = await seen(backend, job().group, lambda o: bool(o.statuses[0].note))
    assert (paused.statuses[0].phase, "paused" in paused.statuses[0].note) == (Phase.RUNNING, True)
    assert await stop(backend) == [Phase.STOPPED]
    assert world.engine.left() == []


async def test_output_during_the_grace_is_kept(world: DockerGroups) -> None:
    world.add("program", "python3", "-c", saves_at_the_notice(seconds=0, exit_code=0))
    backend = world.open()
    await started(backend, job())
    await anext(backend.logs(job().group, 0, follow=True))
    assert await stop(backend, timedelta(minutes=1)) == [Phase.STOPPED]
    assert await text_of(backend.logs(job().group, 0)) == "up\nsaved\n"


async def test_reading_the_log_of_a_removed_container_closes_its_connection(world: DockerGroups) -> None:
    client = DockerClient(world.engine.url)
    await client.connect()
    for _ in range(3):
        with pytest.raises(NotFound):
            async for _ in client.logs("gone", follow=True, since=None, tail_lines=None, silence=None):
                pass
        gc.collect()  # an open socket is a warning, which fails the test
    await client.close()
