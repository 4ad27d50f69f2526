"""The service dies during work on a group's files; the next one completes it and leaves nothing behind.

tests/crash kills the service at every call. The tests here repeat what it found.
"""

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

from job_tracker.backends.base import RankObservation
from job_tracker.backends.process import rank as ranks
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.group import Phase
from tests.support.backends import ProcessGroups, groups_of, printed
from tests.support.jobs import NOON, job
from tests.support.patience import PATIENCE

GRACE = timedelta(seconds=5)
FOREVER = {"RUN_SECONDS": "forever", "PRINT": "up"}


class Died(Exception):
    """Stands for the end of the service: no handler in the service catches it."""


def dies(*args: object, **kwargs: object) -> NoReturn:
    raise Died


def fails(*args: object, **kwargs: object) -> NoReturn:
    raise OSError(5, "Input/output error")


def files(world: ProcessGroups) -> set[str]:
    """Return the names of all files and folders of the backend."""
    return {path.name for path in world.root.rglob("*")}


@pytest.mark.parametrize("call", ["rename", "rmdir", "unlink"])
async def test_an_interrupted_stop_is_completed_by_the_next_service(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    first = world.open()
    await first.launch(job(FOREVER, instances=2))
    for rank in range(2):
        await printed(first, job().group, rank)
    with monkeypatch.context() as patched:
        patched.setattr(os, call, dies)
        with pytest.raises(Died):
            await first.stop(job().group, GRACE)
    second = world.open()
    await second.stop(job().group, GRACE)
    await second.sweep(NOON)
    assert "log" in files(world)
    assert not files(world) & {"command", "work", "tmp"}
    assert await groups_of(second) == {}


@pytest.mark.parametrize("is_launched_again", [True, False])
@pytest.mark.parametrize("name", ["group.json", "command"])
async def test_a_partly_written_file_is_removed(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch, name: str, is_launched_again: bool
) -> None:
    call = "link" if name == "group.json" else "rename"
    original = getattr(os, call)

    def dies_at_it(source: str, target: str, **folders: Any) -> None:
        if Path(target).name == name:
            raise Died
        original(source, target, **folders)

    first = world.open()
    with monkeypatch.context() as patched:
        patched.setattr(os, call, dies_at_it)
        patched.setattr(os, "unlink", dies)  # a dead service cleans nothing up
        with pytest.raises(Died):
            await first.launch(job(FOREVER))
    second = world.open()
    if is_launched_again:
        await second.launch(job(FOREVER))
        await printed(second, job().group)
    await second.stop(job().group, GRACE)
    assert not [file for file in files(world) if file.startswith(f"{name}.")]
    assert not files(world) & {"command", "work", "tmp"}
    assert list((world.root / "live").iterdir()) == []


async def test_a_stop_that_cannot_move_the_folder_can_be_repeated(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = world.open()
    await backend.launch(job(FOREVER))
    await printed(backend, job().group)
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", fails)
        with pytest.raises(BackendUnavailable, match="Input/output error"):
            await backend.stop(job().group, GRACE)
    assert set(await groups_of(backend)) == {job().group}
    end = await backend.stop(job().group, GRACE)
    assert end is not None
    assert end.ranks[0].status.phase is Phase.STOPPED
    assert await groups_of(backend) == {}


async def test_the_next_sweep_deletes_files_that_a_stop_could_not(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = world.open()
    await backend.launch(job(FOREVER))
    await printed(backend, job().group)
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", fails)
        assert await backend.stop(job().group, GRACE) is not None
    assert "command" in files(world)
    await backend.sweep(NOON)
    assert not files(world) & {"command", "work", "tmp"}


SLOW = """
import fcntl, os, sys, time
lock = os.open(sys.argv[1] + "/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
while not os.path.exists({go!r}):
    time.sleep(0.01)
os.close(lock)
import runpy
runpy.run_path({supervisor!r}, run_name="__main__")
"""


async def test_an_observation_leaves_a_slowly_starting_supervisor_alone(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    go, slow = tmp_path / "go", tmp_path / "slow" / "supervisor.py"
    slow.parent.mkdir()
    slow.write_text(SLOW.format(go=str(go), supervisor=str(ranks._SUPERVISOR)))
    monkeypatch.setattr(ranks, "_SUPERVISOR", slow)
    monkeypatch.setattr(ranks, "_RECORD_SECONDS", 0.05)
    backend = world.open()
    launching = asyncio.create_task(backend.launch(job(FOREVER)))
    while not list(world.root.glob("live/*/*/lock")):
        await asyncio.sleep(0.01)
    assert [each.phase for each in (await groups_of(backend))[job().group].statuses] == [Phase.PENDING]
    go.touch()
    assert [each.phase for each in (await launching).statuses] == [Phase.RUNNING]
    await printed(backend, job().group)
    assert [each.phase for each in (await groups_of(backend))[job().group].statuses] == [Phase.RUNNING]


async def test_an_end_is_read_again_after_an_unexpected_error(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "_RETRY_SECONDS", 0.01)
    read, troubles = ranks.RankProcess._read_end, iter([RuntimeError("can't start new thread")])

    def fails_once(process: ranks.RankProcess) -> RankObservation | None:
        if trouble := next(troubles, None):
            raise trouble
        return read(process)

    monkeypatch.setattr(ranks.RankProcess, "_read_end", fails_once)
    backend = world.open()
    await backend.launch(job(FOREVER))
    async with asyncio.timeout(PATIENCE):
        assert await backend.stop(job().group, GRACE) is not None
    assert await groups_of(backend) == {}
