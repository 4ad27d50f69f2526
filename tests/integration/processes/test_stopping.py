"""A stop leaves no process behind, even if the rank's processes try to escape.

tests/conftest.py checks after every test that no process is left. The tests here provoke escapes.
"""

import asyncio
import re
import signal
import time
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from job_tracker.backends.process import group as group_module
from job_tracker.domain.group import Phase
from tests.support.backends import ProcessGroups, printed, seen, text_of
from tests.support.frozen import freeze
from tests.support.jobs import job
from tests.support.patience import PATIENCE
from tests.support.processes import rank_process

SLEEPERS = """
import os, signal, subprocess, sys, time
subprocess.Popen(["sleep", "1000"])                               # a child
subprocess.Popen(["sleep", "1000"], start_new_session=True)       # ... in another session
if os.fork() == 0:                                                # a daemon: forked twice
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "1000"])
    os._exit(0)
os.wait()
"""
WAIT = "print('up', flush=True); time.sleep(1000)"


async def test_children_grandchildren_and_daemons_are_stopped(world: ProcessGroups) -> None:
    world.add("program", "python", "-c", SLEEPERS + WAIT)
    backend = world.open()
    await backend.launch(job(instances=2))
    for rank in range(2):
        await printed(backend, job().group, rank)
    end = await backend.stop(job().group, timedelta(seconds=5))
    assert end is not None
    assert [rank.status.phase for rank in end.ranks] == [Phase.STOPPED] * 2


async def test_processes_that_outlive_their_rank_are_stopped(world: ProcessGroups) -> None:
    world.add("program", "python", "-c", SLEEPERS)
    backend = world.open()
    await backend.launch(job())
    end = await seen(backend, job().group, lambda o: o.has_ended)
    assert end.ranks[0].status.exit_code == 0


async def test_a_rank_may_use_its_grace(world: ProcessGroups) -> None:
    program = (
        "import signal, sys, time\n"
        "def bye(*_):\n"
        "    time.sleep(0.3); print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, bye)\n" + WAIT
    )
    world.add("program", "python", "-c", program)
    backend = world.open()
    await backend.launch(job())
    await printed(backend, job().group)
    await backend.stop(job().group, timedelta(seconds=PATIENCE))
    assert await text_of(backend.logs(job().group, 0)) == "up\nsaved\n"


async def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace_period(world: ProcessGroups) -> None:
    world.add("program", "python", "-c", "import signal, time\nsignal.signal(15, signal.SIG_IGN)\n" + WAIT)
    backend = world.open()
    await backend.launch(job())
    await printed(backend, job().group)
    started = time.monotonic()
    end = await backend.stop(job().group, timedelta(seconds=0.5))
    assert time.monotonic() - started >= 0.5
    assert end is not None
    assert (end.ranks[0].status.phase, end.ranks[0].status.exit_code) == (Phase.STOPPED, 128 + 9)


async def test_a_stop_continues_without_the_service(world: ProcessGroups) -> None:
    world.add("program", "python", "-c", "import signal, time\nsignal.signal(15, signal.SIG_IGN)\n" + WAIT)
    first = world.open()
    await first.launch(job())
    await printed(first, job().group)
    supervisor = rank_process().parent()
    assert supervisor is not None
    freeze(supervisor.pid)  # otherwise the stop could be over before the service dies
    stopping = asyncio.create_task(first.stop(job().group, timedelta(seconds=0.5)))
    async with asyncio.timeout(PATIENCE):
        while not has_to_stop(supervisor.pid):
            await asyncio.sleep(0.01)
    stopping.cancel()  # the service dies
    await asyncio.gather(stopping, return_exceptions=True)
    await first.close()
    supervisor.resume()
    end = await seen(world.open(), job().group, lambda o: o.has_ended)
    assert (end.ranks[0].status.phase, end.ranks[0].status.exit_code) == (Phase.STOPPED, 128 + 9)


def has_to_stop(pid: int) -> bool:
    """Return whether SIGTERM has reached the process, which has not handled it yet."""
    pending = re.search(r"^ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert pending is not None
    return bool(int(pending[1], 16) & 1 << (signal.SIGTERM - 1))


async def test_a_rank_whose_supervisor_the_stop_has_killed_counts_as_stopped(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a preempted job would fail, because its supervisor needed too long to write how it ended."""
    world.add("program", "python", "-c", "import time; " + WAIT)
    backend = world.open()
    await backend.launch(job())
    await printed(backend, job().group)
    supervisor = rank_process().parent()
    assert supervisor is not None
    freeze(supervisor.pid)
    monkeypatch.setattr(group_module, "_STOP_MARGIN_SECONDS", 0.0)
    end = await backend.stop(job().group, timedelta(0))
    assert end is not None
    assert [rank.status.phase for rank in end.ranks] == [Phase.STOPPED]
    assert end.first_failure is None


async def test_a_stalled_supervisor_takes_even_processes_without_any_mark_along(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have left the session and have no HOME. Only their parent, the supervisor, shows their rank."""
    world.add("program", "sh", "-c", "env -i setsid sh -c 'echo $$; exec sleep 1000' & sleep 1000")
    backend = world.open()
    await backend.launch(job())
    hidden = psutil.Process(int(await printed(backend, job().group)))
    supervisor = rank_process().parent()
    assert supervisor is not None
    freeze(supervisor.pid)
    monkeypatch.setattr(group_module, "_STOP_MARGIN_SECONDS", 0.0)
    await backend.stop(job().group, timedelta(0))
    _, alive = psutil.wait_procs([hidden], PATIENCE)  # process 1 inherits it, and may reap it late
    for left in alive:
        left.kill()
    assert not alive
