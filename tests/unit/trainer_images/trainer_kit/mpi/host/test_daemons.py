"""A host runs the daemon that the launcher requests, and says what prevents it."""

import asyncio
import errno
from typing import Any

import pytest
from trainer_kit.errors import GroupError
from trainer_kit.mpi import host, programs
from trainer_kit.mpi.agent import Daemon


class Launcher:
    """The channel to a launcher that does not end."""

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(self, **message: Any) -> None:
        raise AssertionError(message)


async def test_a_daemon_that_cannot_run_is_not_taken_for_a_lost_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(programs, "run", full)
    daemon = Daemon(arguments=["--daemonize"], relocated=False)
    with pytest.raises(GroupError, match="could not run orted, the daemon of mpirun"):
        await host._run_until_done(Launcher(), "orted", daemon)  # type: ignore[arg-type]
