"""Python environments of programs: made completely and only once, shared by equal files, and removed when
unused.
"""

import asyncio
import errno
import fcntl
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.admission.resolution import Resolver
from job_tracker.backends.process import environments
from job_tracker.backends.process.plugin import ProcessPlugin
from job_tracker.backends.process.settings import ProcessSettings
from job_tracker.catalog import FixedCatalog
from job_tracker.catalog.groups import Composition
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import InvalidField, LaunchFailed, NoRoom
from job_tracker.domain.group import GroupSpec, InstanceOptions
from job_tracker.domain.job import Job
from job_tracker.domain.job_spec import Program
from job_tracker.trees.store import TreeStore
from tests.support import tiny_wheel
from tests.support.backends import ProcessGroups, seen, text_of
from tests.support.jobs import job
from tests.support.trees import put

INSTALLING = "training-service: installing the packages of requirements.txt"


class Programs:
    """A backend whose programs find packages in a folder, as an operator would configure an index."""

    def __init__(self, world: ProcessGroups, folder: Path) -> None:
        tiny_wheel.write(folder / "wheels")
        self.store = TreeStore(folder / "programs")
        self.root = world.root.parent / "environments" / "default"
        index = {"UV_OFFLINE": "1", "UV_FIND_LINKS": str(folder / "wheels")}
        self.backend = world.open(trees=self.store, secret_environment=index)

    def job(
        self, job_id: int, files: Mapping[str, bytes], *command: str, requirements: str = "requirements.txt"
    ) -> Job:
        tree = put(self.store.of("default"), files)
        resolver = Resolver(FixedCatalog({}), "process", ProcessPlugin(ProcessSettings()))
        words = command or ("python", "train.py")
        group = resolver.resolve_program(
            "pytorch", words, Composition({"master": 1}, None, False), InstanceOptions()
        )
        made = job(job_id=job_id)
        program = Program(tree=tree, requirements=requirements)
        return replace(made, spec=replace(made.spec, group=group, program=program))

    async def output(self, made: Job) -> list[str]:
        await self.backend.launch(made)
        await seen(self.backend, made.group, lambda o: o.has_ended)
        return (await text_of(self.backend.logs(made.group, 0))).splitlines()

    def environments(self) -> list[Path]:
        return sorted(path.parent for path in self.root.glob("*/complete"))


TRAIN = b"import sys, tiny; print(tiny.version, sys.prefix)"


@pytest.fixture
def programs(world: ProcessGroups, tmp_path: Path) -> Programs:
    return Programs(world, tmp_path)


async def test_two_jobs_at_once_share_an_environment_that_is_made_once(programs: Programs) -> None:
    files = {"requirements.txt": b"tiny==1.0  # of our own\n"}
    first = programs.job(1, {**files, "train.py": TRAIN})
    second = programs.job(2, {**files, "train.py": TRAIN + b"\n"})
    outputs = await asyncio.gather(programs.output(first), programs.output(second))
    [environment] = programs.environments()
    assert [lines[-1] for lines in outputs] == [f"1.0 {environment}"] * 2
    assert sum(INSTALLING in lines for lines in outputs) == 1
    assert programs.root.stat().st_mode & 0o077 == 0


async def test_what_does_not_resolve_ends_the_job_with_the_last_lines_of_uv(programs: Programs) -> None:
    made = programs.job(1, {"requirements.txt": b"tiny==2.0", "train.py": TRAIN})
    await programs.backend.launch(made)
    ended = await seen(programs.backend, made.group, lambda o: o.has_ended)
    diagnosis = ended.first_failure
    assert diagnosis is not None
    assert diagnosis.category is Category.REQUIREMENTS_FAILED
    assert "tiny==2.0" in diagnosis.detail
    assert "Correct the versions in the file" in diagnosis.resolution
    assert programs.environments() == []


async def test_an_environment_that_was_killed_half_way_is_made_again(programs: Programs) -> None:
    files = {"requirements.txt": b"tiny", "train.py": TRAIN}
    await programs.output(programs.job(1, files))
    [environment] = programs.environments()
    (environment / "complete").unlink()
    [package] = environment.rglob("tiny.py")
    package.write_text("version = 'half'")
    lines = await programs.output(programs.job(2, files))
    assert lines[-1] == f"1.0 {environment}"
    assert INSTALLING in lines


async def test_unused_environments_are_removed_and_used_ones_never(programs: Programs) -> None:
    await programs.output(programs.job(1, {"requirements.txt": b"tiny", "train.py": TRAIN}))
    wait = ("python", "-c", "import time; print('begun', flush=True); time.sleep(600)")
    running = programs.job(2, {"requirements.txt": b"tiny>=1"}, *wait)
    await programs.backend.launch(running)
    async for piece in programs.backend.logs(running.group, 0, follow=True):
        if b"begun" in piece:
            break
    assert len(programs.environments()) == 2
    for lock in programs.root.glob("*.lock"):
        os.utime(lock, (1, 1))
    await programs.backend.sweep(datetime.now(UTC))
    [left] = programs.environments()
    await programs.backend.stop(running.group, timedelta(0))
    await programs.backend.sweep(datetime.now(UTC))
    assert programs.environments() == []
    assert not left.exists()
    assert not list(programs.root.glob("*.lock"))


def test_each_project_keeps_a_bounded_number(tmp_path: Path) -> None:
    now = time.time()
    for number in range(4):
        folder = tmp_path / "vision" / f"{number}"
        folder.mkdir(parents=True)
        (folder / "complete").touch()
        lock = tmp_path / "vision" / f"{number}.lock"
        lock.touch()
        os.utime(lock, (now - number, now - number))
    (tmp_path / "vision" / "cache").mkdir()
    (tmp_path / "vision" / "cache.lock").touch()
    with (tmp_path / "vision" / "3.lock").open() as used:
        fcntl.flock(used, fcntl.LOCK_SH)
        environments.sweep(tmp_path, keep=1000, most=2)
    left = sorted(path.name for path in (tmp_path / "vision").iterdir() if path.is_dir())
    assert left == ["0", "1", "3", "cache"], "the cache of uv is not one of the two"


async def test_a_program_uses_the_environment_that_its_caller_names(
    world: ProcessGroups, tmp_path: Path
) -> None:
    tool = tmp_path / "team" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho $VIRTUAL_ENV $HF_HOME\n")
    tool.chmod(0o700)
    programs = Programs(world, tmp_path)
    named, caches = {"team": tmp_path / "team"}, tmp_path / "caches"
    programs.backend = world.open(trees=programs.store, program_environments=named, program_caches=caches)
    made = programs.job(1, {"x": b""}, "tool", requirements="")
    assert made.spec.program is not None
    program = replace(made.spec.program, python_environment="team")
    made = replace(made, spec=replace(made.spec, program=program))
    assert await programs.output(made) == [f"{tmp_path / 'team'} {caches / 'default' / 'huggingface'}"]
    programs.backend = world.open(trees=programs.store)
    with pytest.raises(LaunchFailed) as caught:
        await programs.backend.launch(replace(made, id=2))
    assert "'team' is no longer configured" in caught.value.diagnosis.summary


async def test_a_launch_is_repeated_if_the_disk_has_no_room_for_the_folder_of_caches(
    world: ProcessGroups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = Programs(world, tmp_path)
    caches = tmp_path / "caches"
    programs.backend = world.open(trees=programs.store, program_caches=caches)
    made, make = programs.job(1, {"x": b""}, "sh", "-c", "echo $HF_HOME", requirements=""), Path.mkdir

    def full(path: Path, *arguments: Any, **options: Any) -> None:
        if path == caches / "default":
            raise OSError(errno.ENOSPC, "No space left on device")
        make(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        with pytest.raises(NoRoom, match="the disk is full"):
            await programs.backend.launch(made)
    assert await programs.output(made) == [str(caches / "default" / "huggingface")]


def test_only_what_the_service_has_is_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = ProcessSettings(program_environments={"team": tmp_path})
    resolver = Resolver(FixedCatalog({}), "process", ProcessPlugin(settings))
    group = GroupSpec(roles={"master": 1})
    assert resolver.in_environment(group, "", "team", "") == group
    assert resolver.in_environment(group, "requirements.txt", "", "") == group
    with pytest.raises(InvalidField, match=r"program\.python_environment: .*configured .*: team"):
        resolver.in_environment(group, "", "other", "")
    monkeypatch.setattr("job_tracker.backends.process.plugin.find_uv", lambda: None)
    with pytest.raises(InvalidField, match=r"program\.requirements: not allowed: the service has no uv"):
        resolver.in_environment(group, "requirements.txt", "", "")
    with pytest.raises(InvalidField, match=r"program\.image: 'team:1' .*backend process, .*without images"):
        resolver.in_environment(group, "", "", "team:1")
