"""One rank of a group of processes, as its service follows it."""

import asyncio
import json
import os
import platform
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from job_tracker.backends.process import rank as rank_module
from job_tracker.backends.process.files import GroupFolder, RankFolder
from job_tracker.backends.process.rank import RankProcess
from job_tracker.common.tasks import end
from job_tracker.domain.group import GroupRef, Phase
from job_tracker.files.untrusted import Place
from tests.support.patience import PATIENCE

_EXIT = {"x86_64": 60, "aarch64": 93}
"""The number of the system call that ends only the calling thread."""

_EXITING = """
import ctypes, fcntl, os, sys, threading

def hold():
    while open(f"/proc/{os.getpid()}/cmdline").read():
        pass
    print("exiting", flush=True)
    sys.stdin.read()
    os._exit(0)

lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall(int(sys.argv[2]), 0)
"""
"""A supervisor that is exiting: it has no arguments any more, but still has its files and so its lock."""


@pytest.fixture
def rank(tmp_path: Path) -> RankProcess:
    group = GroupFolder(Place(tmp_path, ("job-1",)), GroupRef("job-1", 1, 1), ("master",), (0,))
    made = RankProcess(0, group, lambda: None)
    made.folder.path.mkdir(parents=True)
    return made


@pytest.mark.skipif(platform.machine() not in _EXIT, reason="the number of the system call is not known")
async def test_a_rank_has_ended_only_when_its_supervisor_has_released_the_lock(rank: RankProcess) -> None:
    folder = rank.folder.path
    arguments = [sys.executable, "-c", _EXITING, str(folder / "lock"), str(_EXIT[platform.machine()])]
    with Popen(arguments, stdin=PIPE, stdout=PIPE) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == b"exiting\n"
        (folder / "process.json").write_text(json.dumps({"supervisor": supervisor.pid, "child": 1}))
        (folder / "exit.json").write_text(json.dumps({"code": 0, "stopped": False, "oom_kills": 0}))
        await rank.follow()
        assert rank.is_running
        assert not rank.ended.is_set()
        assert supervisor.stdin is not None
        supervisor.stdin.close()
        await rank.ended.wait()
        assert not rank.folder.is_supervised()
    assert rank.observe().status.phase is Phase.SUCCEEDED
    await rank.close()


async def test_a_supervisor_that_ends_before_it_is_followed_leaves_no_zombie(
    rank: RankProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn, started = rank_module.spawn_supervisor, []

    def spawn_and_wait(*arguments: Any) -> int:
        pid = spawn(*arguments)
        started.append(pid)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return pid

    monkeypatch.setattr(rank_module, "spawn_supervisor", spawn_and_wait)
    rank.folder.prepare(("true",), {"PATH": os.defpath}, None, 1 << 20)
    await rank.start()
    await rank.ended.wait()
    assert rank.observe().status.phase is Phase.SUCCEEDED
    [pid] = started
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    await rank.close()


async def test_a_kill_goes_on_if_its_caller_is_cancelled_before_a_thread_is_free(rank: RankProcess) -> None:
    rank.folder.prepare(("sleep", "1000"), {"PATH": os.defpath}, None, 1 << 20)
    await rank.start()
    is_free = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        threads.submit(is_free.wait, PATIENCE)
        killing = asyncio.create_task(rank.kill())
        await asyncio.sleep(0)  # it begins, and waits for a thread
        await end(killing)
        is_free.set()
        await rank.ended.wait()
        assert rank.observe().status.phase is Phase.FAILED
        await rank.close()


async def test_a_supervisor_that_takes_its_lock_during_a_look_is_not_taken_for_dead(
    rank: RankProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([False, True, True])
    monkeypatch.setattr(RankFolder, "is_supervised", lambda _: next(looks))
    assert rank_module._find(rank.folder).is_unwritten
    assert list(looks) == []


async def test_a_rank_that_begins_to_start_during_a_look_is_left_to_its_start(
    rank: RankProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(_: RankFolder) -> rank_module._Found:
        rank._is_starting = True
        return rank_module._Found(restarts=0, was_started=True, is_unwritten=True)

    monkeypatch.setattr(rank_module, "_find", find)
    monkeypatch.setattr(rank_module, "_RECORD_SECONDS", 0.0)
    await rank.follow()
    assert rank.is_pending
