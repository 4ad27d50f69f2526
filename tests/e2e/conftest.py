"""The service as users have it: a process of its own, its data in a folder, its API on a port."""

import functools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.cluster_fixtures import *  # noqa: F403
from tests.support.docker_fixtures import *  # noqa: F403
from tests.support.parameters import declared
from tests.support.redis_server import RedisServer, server_or_skip
from training_service.client import TrainingClient

PROGRAM = Path(__file__).parents[1] / "support" / "program.py"
CONFIG = f"""
[algorithms.program]
{declared()}
[algorithms.program.process]
command = ["python", "{PROGRAM}"]
[algorithms.of-the-book]
{declared(("LR", "EPOCHS"))}
[algorithms.of-the-book.process]
command = ["python", "{PROGRAM}"]
"""


class Server:
    """A service that can be killed and started again on the same data and port."""

    def __init__(self, folder: Path, name: str = "service") -> None:
        self.folder = folder
        self.data_dir = folder
        self.log = folder / f"{name}.log"
        (folder / "config.toml").write_text(CONFIG)
        self.address = "127.0.0.1:0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> TrainingClient:
        """Start it, and connect to it."""
        begin = self.log.stat().st_size if self.log.exists() else 0
        self.process = self._spawn(arguments)
        while "serving at" not in (text := self.log.read_text()[begin:]):
            assert self.process.poll() is None, text
            time.sleep(0.02)
        self.address = text.split("serving at ")[1].split(",")[0]
        return TrainingClient(self.address)

    def refused(self, *arguments: str) -> str:
        """What it says as it refuses to start."""
        begin = self.log.stat().st_size if self.log.exists() else 0
        assert self._spawn(arguments).wait(timeout=20) == 2
        return self.log.read_text()[begin:]

    def _spawn(self, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        command = [str(Path(sys.executable).with_name("training-service")), "serve", *arguments]
        command += ["--data-dir", str(self.data_dir), "--config", str(self.folder / "config.toml")]
        command += ["--address", self.address]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stderr=log)

    def end(self, number: int) -> int:
        """Signal it; the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=20)

    def rank(self, job_id: int, rank: int) -> psutil.Process:
        """The training process of a rank, found by its environment."""
        wanted = (str(job_id), str(rank))
        for process, told in self._processes():
            if (told.get("JOB_ID"), told.get("RANK")) == wanted:
                return process
        raise AssertionError(f"rank {rank} of job {job_id} does not run")

    def ranks(self) -> list[psutil.Process]:
        """The processes of all ranks."""
        return [process for process, _ in self._processes()]

    def _processes(self) -> Iterator[tuple[psutil.Process, dict[str, str]]]:
        for process in psutil.process_iter():
            try:
                told = process.environ()
            except psutil.Error:
                continue
            if told.get("HOME", "").startswith(str(self.folder)):
                yield process, told


@pytest.fixture
def server(tmp_path: Path, storage: Path) -> Iterator[Server]:
    """A service that is not started yet; afterwards every job is cancelled, and the service stopped."""
    made = Server(tmp_path)
    yield made
    if made.process is None or made.process.poll() is not None:
        made.start().close()
    with TrainingClient(made.address) as client:
        for job in client.list():
            client.cancel(job.job_id)
        for job in client.list():
            client.wait(job.job_id, timeout=20)
    assert made.end(signal.SIGTERM) == 0


@pytest.fixture
def make_server(tmp_path: Path, storage: Path) -> Callable[[str], Server]:
    """Services by name that share the data folder. Whoever starts one ends it."""
    return functools.partial(Server, tmp_path)


@pytest.fixture
def redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """A running one, which services use."""
    made = server_or_skip(tmp_path / "redis")
    made.start("--requirepass", "s3cret")
    made.password = "s3cret"
    monkeypatch.setenv("TRAINING_SERVICE_STORE__URL", made.url)
    monkeypatch.setenv("TRAINING_SERVICE_STORE__ANSWER_SECONDS", "1")
    yield made
    made.end()
