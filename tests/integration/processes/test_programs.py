"""Uploaded programs: each rank starts in its own copy, which is complete, and is removed with the attempt."""

import errno
import shutil
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from job_tracker.admission.resolution import Resolver
from job_tracker.backends.process.plugin import ProcessPlugin
from job_tracker.backends.process.settings import ProcessSettings
from job_tracker.catalog import FixedCatalog
from job_tracker.catalog.groups import Composition
from job_tracker.domain import naming
from job_tracker.domain.errors import LaunchFailed, NoRoom
from job_tracker.domain.group import InstanceOptions
from job_tracker.domain.job import Job
from job_tracker.domain.job_spec import Program
from job_tracker.files.untrusted import Place
from job_tracker.trees.store import ProjectTrees, TreeStore
from tests.support.backends import ProcessGroups, seen, text_of
from tests.support.jobs import job
from tests.support.trees import put, sha256_of

NO_OPTIONS = InstanceOptions()
FILES = {
    "train.py": b"import os, sys; print(sys.argv[1:], os.environ.get('MODE'), open('data/x').read())",
    "data/x": b"words",
    "tool.sh": b"#!/bin/sh\necho ran $0 $#; echo more >> data/x\n",
}


class Programs:
    """A backend with uploaded trees."""

    def __init__(self, world: ProcessGroups) -> None:
        self.world = world
        self.store = TreeStore(world.root.parent / "programs")
        self.trees: ProjectTrees = self.store.of("default")
        self.backend = world.open(trees=self.store)

    def job(self, *command: str, files: dict[str, bytes] | None = None, instances: int = 1) -> Job:
        tree = put(self.trees, FILES if files is None else files)
        resolver = Resolver(FixedCatalog({}), "process", ProcessPlugin(ProcessSettings()))
        roles = {naming.MASTER: 1, **({naming.WORKER: instances - 1} if instances > 1 else {})}
        group = resolver.resolve_program(
            "pytorch", command, Composition(roles, None, False), InstanceOptions()
        )
        made = job(instances=instances)
        program = Program(tree=tree, environment={"MODE": "fast"})
        return replace(made, spec=replace(made.spec, group=group, program=program))

    async def output(self, made: Job) -> list[str]:
        await self.backend.launch(made)
        await seen(self.backend, made.group, lambda o: o.has_ended)
        return [
            (await text_of(self.backend.logs(made.group, rank))).strip()
            for rank in range(made.spec.instances)
        ]

    def work(self, made: Job, rank: int = 0) -> Path:
        role = naming.MASTER if rank == 0 else naming.WORKER
        name = naming.instance_name(made.group.name, rank, role)
        return self.world.root / "live" / made.group.name / name / "work"


@pytest.fixture
def programs(world: ProcessGroups) -> Programs:
    return Programs(world)


async def test_arguments_reach_the_program_as_arguments(programs: Programs) -> None:
    odd = ["--lr", "0.1", "$(touch /tmp/x)", "a b", "; rm -rf .", "*", "", "'\"", "line\nbreak", "größe"]
    made = programs.job("python", "train.py", *odd)
    assert await programs.output(made) == [f"{odd} fast words"]


async def test_each_rank_has_a_copy_of_its_own(programs: Programs) -> None:
    made = programs.job("./tool.sh", "one", instances=3)
    assert await programs.output(made) == ["ran ./tool.sh 1"] * 3
    for rank in range(3):
        assert (programs.work(made, rank) / "data" / "x").read_text() == "wordsmore\n"
    assert programs.trees.blobs.names(9) == sorted(sha256_of(content) for content in FILES.values())
    await programs.backend.stop(made.group, timedelta(0))
    assert not list(programs.world.root.rglob("tool.sh")), "the copies are gone with the attempt"


async def test_an_attempt_starts_with_fresh_files(programs: Programs) -> None:
    made = programs.job("./tool.sh")
    await programs.output(made)
    await programs.backend.stop(made.group, timedelta(0))
    again = replace(made, attempt=2)
    await programs.output(again)
    assert (programs.work(again) / "data" / "x").read_text() == "wordsmore\n"


@pytest.mark.parametrize(
    ("command", "advice"), [("train.p", "Name a file of the uploaded folder"), ("./train.py", "chmod +x")]
)
async def test_advice_about_a_program_that_cannot_start_is_for_its_user(
    programs: Programs, command: str, advice: str
) -> None:
    made = programs.job(command)
    await programs.backend.launch(made)
    ended = await seen(programs.backend, made.group, lambda o: o.has_ended)
    diagnosis = ended.first_failure
    assert diagnosis is not None
    assert advice in diagnosis.resolution
    assert "configuration" not in diagnosis.resolution


async def test_a_program_whose_files_are_gone_or_changed_is_not_started(programs: Programs) -> None:
    made = programs.job("python", "train.py", instances=2)
    blob = (programs.trees.blobs / sha256_of(FILES["train.py"])).path
    blob.write_bytes(b"print('stolen')")
    with pytest.raises(LaunchFailed) as caught:
        await programs.backend.launch(made)
    assert "train.py was changed" in caught.value.diagnosis.detail
    assert "trainctl run" in caught.value.diagnosis.resolution
    assert not list(programs.world.root.rglob("process.json"))
    with pytest.raises(LaunchFailed):
        await programs.backend.launch(made)
    await programs.backend.stop(made.group, timedelta(0))


def stop_after(files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let unpacking fail after some files, as a crash would end it."""
    create, left = Place.create, [files]

    def counted(place: Place) -> Any:
        if "work.part" in place.parts:
            left[0] -= 1
            if left[0] < 0:
                raise OSError("as if killed")
        return create(place)

    monkeypatch.setattr(Place, "create", counted)


@pytest.mark.parametrize("files", range(3))
async def test_a_launch_that_was_killed_while_it_unpacked_is_repeated_from_the_start(
    programs: Programs, files: int
) -> None:
    made = programs.job("./tool.sh")
    with pytest.MonkeyPatch.context() as patch:
        stop_after(files, patch)
        with pytest.raises(LaunchFailed):
            await programs.backend.launch(made)
    assert not programs.work(made).exists()
    assert not list(programs.world.root.rglob("command")), "nothing is started before all files are there"
    assert await programs.output(made) == ["ran ./tool.sh 0"]
    assert not list(programs.world.root.rglob("work.part"))


async def test_a_copy_for_which_the_disk_has_no_room_leaves_it_as_it_was(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, create = programs.job("./tool.sh"), Place.create

    def full(place: Place) -> Any:
        if place.name == "train.py" and "work.part" in place.parts:
            assert list(programs.world.root.rglob("work.part/tool.sh"))
            raise OSError(errno.ENOSPC, "No space left on device")
        return create(place)

    with monkeypatch.context() as patch:
        patch.setattr(Place, "create", full)
        with pytest.raises(NoRoom, match="the disk is full"):
            await programs.backend.launch(made)
    assert not list(programs.world.root.rglob("work.part"))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
        patch.setattr(Place, "create", lambda place: pytest.fail(f"{place.path} was written"))
        with pytest.raises(NoRoom, match="the disk is full"):
            await programs.backend.launch(made)
    assert await programs.output(made) == ["ran ./tool.sh 0"]


async def test_files_from_before_a_power_failure_are_written_again(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from job_tracker.backends.process import working_copies

    made = programs.job("./tool.sh")
    other_boot = tmp_path / "boot_id"
    other_boot.write_text("another-start\n")
    with monkeypatch.context() as patch:
        patch.setattr(working_copies, "_BOOT_ID", other_boot)
        patch.setattr("job_tracker.backends.process.group.ProcessGroup.start", _not_yet)
        with pytest.raises(LaunchFailed):
            await programs.backend.launch(made)
    (programs.work(made) / "tool.sh").write_text("")  # as the disk has it after a power failure
    assert await programs.output(made) == ["ran ./tool.sh 0"]


async def _not_yet(_: object) -> None:
    raise OSError("as if killed")


async def test_a_copy_that_is_whole_is_used_by_the_next_service(programs: Programs) -> None:
    made = programs.job("./tool.sh")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("job_tracker.backends.process.group.ProcessGroup.start", _not_yet)
        with pytest.raises(LaunchFailed):
            await programs.backend.launch(made)
    inode = programs.work(made).stat().st_ino
    assert await programs.output(made) == ["ran ./tool.sh 0"]
    assert programs.work(made).stat().st_ino == inode


async def test_only_the_job_can_read_its_copy(programs: Programs) -> None:
    made = programs.job("./tool.sh")
    await programs.output(made)
    for path in (programs.work(made), *programs.work(made).rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


async def test_a_program_uses_the_configured_environment(world: ProcessGroups, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python-of-the-team").symlink_to(sys.executable)
    resolver = Resolver(
        FixedCatalog({}), "process", ProcessPlugin(ProcessSettings(program_environment=environment))
    )
    programs = Programs(world)
    made = programs.job("python-of-the-team", "train.py")
    group = resolver.resolve_program(
        "pytorch",
        ("python-of-the-team", "train.py"),
        Composition({"master": 1}, None, False),
        InstanceOptions(),
    )
    assert await programs.output(replace(made, spec=replace(made.spec, group=group))) == ["[] fast words"]
