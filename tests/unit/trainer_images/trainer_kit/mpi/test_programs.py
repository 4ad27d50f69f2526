"""Runs programs of Open MPI."""

import asyncio
import os
import threading
from typing import Any

import psutil
import pytest
from trainer_kit.mpi import programs


async def test_a_program_that_ends_on_sigterm_is_not_logged_as_an_unknown_child(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Asyncio waits for children in threads, which a busy machine may wake late."""
    late, waitpid = threading.Event(), os.waitpid
    monkeypatch.setattr(os, "waitpid", lambda *args: (late.wait(), waitpid(*args))[1])
    create, created = asyncio.create_subprocess_exec, asyncio.get_running_loop().create_future()

    async def creating(*program: str, **options: Any) -> asyncio.subprocess.Process:
        process = await create(*program, **options)
        created.set_result(process.pid)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", creating)
    running = asyncio.create_task(programs.run(["sleep", "0"], {}))
    while psutil.Process(await created).status() != psutil.STATUS_ZOMBIE:
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.sleep(0)
    late.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert caplog.text == ""


async def test_a_program_that_ignores_sigterm_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(programs, "GRACE_SECONDS", 0.2)
    running = asyncio.create_task(programs.run(["sh", "-c", "trap '' TERM; exec sleep 1000"], {}))
    while not (started := [child for child in psutil.Process().children() if child.name() == "sleep"]):
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running  # which would take 1000 s
    assert not started[0].is_running()
