"""Services that share the files of groups: readers change nothing, and latecomers do no harm."""

import asyncio
import os
from contextlib import suppress
from datetime import timedelta

import psutil
import pytest

from job_tracker.backends.process import backend as backend_module
from job_tracker.backends.process.files import GroupFolder
from job_tracker.backends.process.group import ProcessGroup
from job_tracker.backends.process.plan import ProcessPlan
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import Phase
from tests.support.backends import ProcessGroups, groups_of, printed, seen, text_of
from tests.support.jobs import job
from tests.support.logs import texts_of
from tests.support.patience import PATIENCE
from tests.support.processes import rank_process

GRACE = timedelta(seconds=5)


async def test_a_reader_does_not_clean_up_after_a_killed_supervisor(world: ProcessGroups) -> None:
    world.add("program", "sh", "-c", "setsid sh -c 'echo up; exec sleep 1000' & sleep 1000")
    first = world.open()
    await first.launch(job())
    await printed(first, job().group)
    [left] = [each for each in rank_process().children() if is_leader(each)]
    supervisor = rank_process().parent()
    assert supervisor is not None
    await first.close()
    reader = world.open()
    pieces = texts_of(reader.logs(job().group, 0, follow=True))
    assert await anext(pieces) == "up\n"
    supervisor.kill()
    supervisor.wait()
    assert [piece async for piece in pieces] == []
    assert left.is_running()
    await seen(world.open(), job().group, lambda o: o.has_ended)
    _, alive = psutil.wait_procs([left], PATIENCE)  # process 1 inherits it, and may reap it late
    assert not alive


def is_leader(process: psutil.Process) -> bool:
    """Return whether the process leads a session."""
    return os.getsid(process.pid) == process.pid


async def test_a_late_stop_leaves_the_logs_that_another_service_has_kept(world: ProcessGroups) -> None:
    world.add("program", "sh", "-c", "echo up; sleep 1000")
    one, other = world.open(), world.open()
    await one.launch(job())
    await printed(one, job().group)
    await groups_of(other)
    await one.stop(job().group, GRACE)
    await other.stop(job().group, GRACE)
    assert await text_of(other.logs(job().group, 0)) == "up\n"


async def test_a_late_launch_does_not_start_a_group_that_another_service_has_stopped(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service is paused in the middle of a launch (SIGSTOP), and continues when the group has ended."""
    world.add("program", "sh", "-c", "echo up")
    late, other = world.open(), world.open()
    prepare = backend_module._prepare

    def prepare_late(folder: GroupFolder, plan: ProcessPlan, most_log: int, unpack: None) -> None:
        folder.path.rename(world.root / "ended-by-another")
        prepare(folder, plan, most_log, unpack)

    monkeypatch.setattr(backend_module, "_prepare", prepare_late)
    with suppress(LaunchFailed):
        await late.launch(job())
    assert await groups_of(other) == {}
    assert not list((world.root / "live").glob("*"))


async def test_a_group_whose_launch_another_service_completed_is_followed_to_its_end(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("program", "sh", "-c", "echo up")
    one, other = world.open(), world.open()

    async def cut_short(group: ProcessGroup) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(ProcessGroup, "start", cut_short)
        with pytest.raises(asyncio.CancelledError):
            await one.launch(job())
    assert [rank.phase for rank in (await groups_of(one))[job().group].statuses] == [Phase.PENDING]
    await other.launch(job())
    await seen(other, job().group, lambda o: o.has_ended)
    [rank] = (await groups_of(one))[job().group].statuses
    assert rank.phase is Phase.SUCCEEDED


async def test_two_concurrent_launches_make_one_group(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("program", "sh", "-c", 'echo "$MASTER_PORT $RANK" >> ../../../../ranks; echo up; sleep 1000')
    one, other = world.open(), world.open()
    await groups_of(one)
    await groups_of(other)
    await one.launch(job(instances=2))
    monkeypatch.setattr(other._folders, "find", lambda group: None)  # as if it had looked just before
    await other.launch(job(instances=2))
    for rank in range(2):
        await printed(one, job().group, rank)
    await one.stop(job().group, GRACE)
    lines = [line.split() for line in (world.root / "ranks").read_text().splitlines()]
    assert sorted(rank for _, rank in lines) == ["0", "1"]
    assert len({port for port, _ in lines}) == 1
