"""Uploaded programs in containers: no container starts before its files are complete, and none runs twice."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.environments import KeptEnvironments
from job_tracker.backends.docker.kept_programs import KeptPrograms
from job_tracker.backends.docker.plan import plan
from job_tracker.backends.docker.plugin import DockerPlugin
from job_tracker.backends.docker.settings import DockerSettings
from job_tracker.domain.errors import BackendUnavailable, LaunchFailed
from job_tracker.domain.group import InstanceOptions
from job_tracker.domain.job import Job
from job_tracker.trees.store import TreeStore
from tests.support import programs, tiny_wheel
from tests.support.backends import DockerGroups, groups_of, seen, text_of
from tests.support.cluster import PROGRAM_IMAGE
from tests.support.trees import put, sha256_of

SHORT = timedelta(seconds=1)


class Killed(BaseException):
    """The service was killed."""


class Programs:
    """Backends with uploaded trees on an engine."""

    def __init__(self, world: DockerGroups, folder: Path) -> None:
        self.world = world
        self.store = TreeStore(folder)
        self.trees = self.store.of("default")
        self.settings = DockerSettings(
            base_url=world.engine.url,
            instance="test",
            extra_hosts={},
            program_image=PROGRAM_IMAGE,
            network="none",
        )

    def open(self) -> Any:
        return self.world.open(trees=self.store, program_image=PROGRAM_IMAGE, network="none")

    def job(self, *command: str, instances: int = 2, **changes: Any) -> Job:
        tree = put(self.trees, programs.FILES)
        wanted = command or tuple(programs.COMMAND)
        more = {"environment": programs.ENVIRONMENT, "instances": instances, **changes}
        return programs.program_job(DockerPlugin(self.settings), "docker", tree, *wanted, **more)

    async def check(self, made: Job) -> None:
        """Launch the job with another service, and check that each rank ran once with all files."""
        backend = self.open()
        await backend.launch(made)
        ended = await seen(backend, made.group, lambda group: group.has_ended)
        assert ended.first_failure is None
        size = made.spec.instances
        for rank in range(size):
            text = await text_of(backend.logs(made.group, rank))
            assert programs.printed_by(text) == programs.output(rank, size)
        await backend.stop(made.group, SHORT)
        assert self.world.engine.left() == []


@pytest.fixture
async def here(world: DockerGroups, tmp_path: Path) -> AsyncIterator[Programs]:
    volumes = world.engine.docker("volume", "ls", "-q")
    yield Programs(world, tmp_path / "programs")
    world.engine.clear()
    assert world.engine.docker("volume", "ls", "-q") == volumes


def killed_at(patch: pytest.MonkeyPatch, name: str, call: int, *, after: bool) -> None:
    """Let a method of the client end the service at one of its calls, before or after it has its effect."""
    original: Callable[..., Any] = getattr(DockerClient, name)
    calls = 0

    async def counted(self: DockerClient, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        is_here = calls == call
        if is_here and not after:
            raise Killed
        answer = await original(self, *args)
        if is_here:
            raise Killed
        return answer

    patch.setattr(DockerClient, name, counted)


@pytest.mark.parametrize(
    ("name", "call", "after"),
    [
        ("create_container", 1, True),
        ("create_container", 2, True),
        ("create_container", 3, True),
        ("put_archive", 1, False),
        ("put_archive", 1, True),
        ("commit", 1, False),
        ("commit", 1, True),
        ("create_network", 1, True),
        ("start", 1, False),
        ("start", 1, True),
        ("start", 2, False),
        ("start", 2, True),
    ],
)
async def test_a_service_that_was_killed_during_a_launch_is_continued_by_the_next(
    here: Programs, name: str, call: int, after: bool
) -> None:
    made = here.job()
    first = here.open()
    with pytest.MonkeyPatch.context() as patch:
        killed_at(patch, name, call, after=after)
        with pytest.raises(Killed):
            await first.launch(made)
    await first.close()
    found = (await groups_of(here.open())).get(made.group)
    assert found is None or found.first_failure is None
    await here.check(made)


@pytest.mark.parametrize("after", [False, True])
async def test_a_service_that_was_killed_when_it_noted_the_use_of_an_image_is_continued(
    here: Programs, after: bool
) -> None:
    await here.check(here.job())  # makes the image of the files
    made = here.job()
    first = here.open()
    with pytest.MonkeyPatch.context() as patch:
        killed_at(patch, "tag", 1, after=after)
        with pytest.raises(Killed):
            await first.launch(made)
    await first.close()
    await here.check(made)


async def test_a_container_with_a_part_of_its_files_is_replaced(here: Programs) -> None:
    made = here.job(instances=1)
    planned = plan(made, here.settings, most_log=100 << 20)
    client = DockerClient(here.world.engine.url)
    container = await client.create_container(planned.containers[0].name, planned.containers[0].request)
    whole = b"".join(here.trees.archive(planned.program[1], "work")) if planned.program else b""

    async def cut() -> AsyncIterator[bytes]:
        yield whole[: len(whole) // 2]
        raise OSError("as if the service was killed")

    with pytest.raises(OSError, match="as if"):
        await client.put_archive(container, "/home/training", cut())
    await client.close()
    await here.check(made)


async def test_nothing_is_started_if_files_were_changed_on_the_disk(here: Programs) -> None:
    made = here.job()
    (here.trees.blobs / sha256_of(programs.FILES["train.py"])).path.write_bytes(b"print('stolen')")
    backend = here.open()
    with pytest.raises(LaunchFailed) as failed:
        await backend.launch(made)
    assert "train.py was changed" in failed.value.diagnosis.detail
    assert "trainctl run" in failed.value.diagnosis.resolution
    await backend.stop(made.group, SHORT)
    assert here.world.engine.left() == []


async def test_a_launch_without_an_engine_is_repeated(here: Programs) -> None:
    made = here.job(instances=1)
    backend = here.open()
    with pytest.MonkeyPatch.context() as patch:

        async def silent(*_: Any) -> None:
            raise BackendUnavailable("as if the engine were away")

        patch.setattr(DockerClient, "put_archive", silent)
        with pytest.raises(BackendUnavailable):
            await backend.launch(made)
    await backend.close()
    await here.check(made)


async def test_a_missing_image_is_explained_for_programs(here: Programs) -> None:
    settings = here.settings.model_copy(update={"program_image": "not-there:1", "pull": "never"})
    tree = put(here.trees, programs.FILES)
    made = programs.program_job(DockerPlugin(settings), "docker", tree, "true", options=InstanceOptions())
    with pytest.raises(LaunchFailed) as failed:
        await here.world.open(trees=here.store, pull="never").launch(made)
    assert "docker.program_image" in failed.value.diagnosis.resolution


async def test_the_files_are_sent_once_for_all_ranks_and_attempts(here: Programs) -> None:
    sent = 0
    original = DockerClient.put_archive

    async def counted(self: DockerClient, *args: Any) -> None:
        nonlocal sent
        sent += 1
        await original(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DockerClient, "put_archive", counted)
        await here.check(here.job())
        await here.check(here.job())  # by a backend that has just been opened
    assert sent == 1


async def test_two_jobs_at_a_time_share_the_files(here: Programs) -> None:
    client = DockerClient(here.world.engine.url)
    images = KeptPrograms(client, here.store, instance="test", keep=timedelta(hours=1), most=1)
    tree = put(here.trees, programs.FILES)
    made = [images.ensure(here.settings.program_image, "default", tree) for _ in range(3)]
    names = set(await asyncio.gather(*made))
    assert len(names) == 1
    assert here.world.engine.left() == []  # the objects that were needed to make the image are gone
    put(here.store.of("other"), programs.FILES)
    other = await images.ensure(here.settings.program_image, "other", tree)
    assert other not in names, "projects share nothing"
    await client.close()


async def test_files_are_removed_from_the_engine_when_they_were_not_used(here: Programs) -> None:
    client = DockerClient(here.world.engine.url)
    images = KeptPrograms(client, here.store, instance="test", keep=timedelta(hours=1), most=1)
    base, tree = here.settings.program_image, put(here.trees, programs.FILES)
    first = await images.ensure(base, "default", tree)
    await images.sweep(time.time())
    assert await client.has_image(first)
    held = await client.create_container("holds", {"Image": first, "Entrypoint": ["/"]})
    await images.sweep(time.time() + 7200)
    assert await client.has_image(first), "a container uses it"
    await client.remove(held)
    await images.sweep(time.time() + 14400)
    assert not await client.has_image(first)
    assert await client.has_image(base)
    await client.close()


async def test_jobs_of_a_project_share_packages_and_other_projects_do_not(
    here: Programs, tmp_path: Path
) -> None:
    tiny_wheel.write(tmp_path / "wheels")
    [wheel] = (tmp_path / "wheels").iterdir()
    files = {
        "requirements.txt": b"--no-index\n--find-links .\ntiny==1.0\n",
        wheel.name: wheel.read_bytes(),
    }
    print_it = ("python", "-c", "import sys, tiny; print(tiny.version, sys.prefix)")

    def job_of(number: int, project: str) -> Job:
        tree = put(here.store.of(project), files)
        made = programs.program_job(
            DockerPlugin(here.settings),
            *("docker", tree, *print_it),
            requirements="requirements.txt",
            job_id=number,
        )
        return replace(made, spec=replace(made.spec, project=project))

    jobs = [job_of(1, "default"), job_of(2, "default"), job_of(3, "other")]
    backend = here.open()
    await asyncio.gather(*(backend.launch(each) for each in jobs))
    outputs = []
    for each in jobs:
        ended = await seen(backend, each.group, lambda group: group.has_ended)
        assert ended.first_failure is None
        outputs.append((await text_of(backend.logs(each.group, 0))).splitlines())
    assert [lines[-1].partition(" ")[0] for lines in outputs] == ["1.0"] * 3
    assert outputs[0][-1] == outputs[1][-1], "they share one environment"
    installed = [any("installing the packages" in line for line in lines) for lines in outputs]
    assert (installed[0] + installed[1], installed[2]) == (1, True)
    client = DockerClient(here.world.engine.url)
    sweeper = KeptEnvironments(client, instance="test", keep=timedelta(hours=1))
    await sweeper.sweep(time.time())
    await sweeper.sweep(time.time() + 7200)
    assert len(volumes_of(here)) == 2, "containers use them"
    for each in jobs:
        await backend.stop(each.group, SHORT)
    await sweeper.sweep(time.time() + 7200 + 1200)
    assert len(volumes_of(here)) == 2, "they were used less than an hour ago"
    await sweeper.sweep(time.time() + 7200 + 7200)
    assert volumes_of(here) == []
    await client.close()


def volumes_of(here: Programs) -> list[str]:
    return [each for each in here.world.engine.left() if each.startswith("training-service-environments-")]
