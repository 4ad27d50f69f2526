"""The service as users run it: a process with its data in a folder and its API on a port."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.support.imported import DASHBOARD
from tests.support.parameters import declared
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.trainers.forkserver import ForkServer
from training_service.client import TrainingClient

COMMAND = str(Path(sys.executable).with_name("training-service"))
FORKS: ForkServer | None = None
"""The server that forks COMMAND; None: COMMAND is started as a new program. See the fixture
`forked_services`.
"""
IMPORTED = (
    *DASHBOARD,
    "fsspec.implementations.local",
    "job_tracker.backends.process.backend",
    "job_tracker.backends.process.spool",
    "job_tracker.store.redis",
    "job_tracker.store.sqlite",
    "training_service.backups",
    "training_service.client.cli",
    "training_service.commands",
    "training_service.health_check",
    "training_service.main",
    "training_service.settings:settings_model",
)
"""The modules that the fork server imports before it forks.

These are the modules that services import before they read their settings, the modules that most services
import later, and the modules of trainctl.
"""
PROGRAM = Path(__file__).with_name("program.py")
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
        self.address = f"127.0.0.1:{free_port()}"
        self.process: subprocess.Popen[Any] | None = None

    def start(self, *arguments: str) -> TrainingClient:
        """Start the service, and return a client that is connected to it."""
        self.launch(*arguments)
        client = TrainingClient(self.address, patience=PATIENCE)
        # The client gives up a first call after about 3 s, and the service may pause for longer. A health
        # check waits for the connection. It needs no token, and no limit or metric counts it.
        check: Any = HealthStub(client._channel).Check
        check(HealthCheckRequest(), timeout=PATIENCE, wait_for_ready=True)
        return client

    def launch(self, *arguments: str) -> None:
        """Start the service, and wait until its log says where it serves."""
        begin = self.log.stat().st_size if self.log.exists() else 0
        self.process = self._spawn(arguments)
        while "serving at" not in (text := self.log.read_text()[begin:]):
            assert self.process.poll() is None, text
            time.sleep(0.02)
        self.address = text.split("serving at ")[1].split(",")[0]

    def refused(self, *arguments: str) -> str:
        """Try to start the service, which must refuse with exit code 2, and return its log."""
        begin = self.log.stat().st_size if self.log.exists() else 0
        assert self._spawn(arguments).wait(timeout=PATIENCE) == 2
        return self.log.read_text()[begin:]

    def _spawn(self, arguments: tuple[str, ...]) -> subprocess.Popen[Any]:
        command = [COMMAND, "serve", *arguments]
        command += ["--data-dir", str(self.data_dir), "--config", str(self.folder / "config.toml")]
        command += ["--address", self.address]
        with self.log.open("ab") as log:
            if FORKS is None:
                return subprocess.Popen(command, stderr=log)
            return FORKS.start_with(command, _environment(os.environ), 1, log.fileno())

    def end(self, number: int) -> int:
        """Send the signal and return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE)

    def rank(self, job_id: int, rank: int) -> psutil.Process:
        """Return the training process of a rank, found by its environment."""
        wanted = (str(job_id), str(rank))
        for process, environment in self._processes():
            if (environment.get("JOB_ID"), environment.get("RANK")) == wanted:
                return process
        raise AssertionError(f"rank {rank} of job {job_id} does not run")

    def ranks(self) -> list[psutil.Process]:
        """Return the processes of all ranks."""
        return [process for process, _ in self._processes()]

    def _processes(self) -> Iterator[tuple[psutil.Process, dict[str, str]]]:
        for process in psutil.process_iter():
            try:
                environment = process.environ()
            except psutil.Error:
                continue
            if environment.get("HOME", "").startswith(str(self.folder)):
                yield process, environment


@pytest.fixture
def server(tmp_path: Path, storage: Path) -> Iterator[Server]:
    """A service that is not started yet. Afterwards, every job is cancelled and the service is stopped."""
    made = Server(tmp_path)
    yield made
    if made.process is None or made.process.poll() is not None:
        made.start().close()
    with TrainingClient(made.address) as client:
        for job in client.list():
            client.cancel(job.job_id)
        for job in client.list():
            client.wait(job.job_id, timeout=PATIENCE)
    assert made.end(signal.SIGTERM) == 0


@pytest.fixture(scope="session")
def service_forks() -> Iterator[ForkServer]:
    """A fork server for services."""
    server = ForkServer(IMPORTED)
    server.wait_for_imports()
    yield server
    server.close()


@pytest.fixture
def forked_services(service_forks: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork services from a process that has imported their modules, which takes most of their start."""
    monkeypatch.setattr("tests.support.server.FORKS", service_forks)


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end with only PATH and these environment variables."""
    return run_within(PATIENCE, arguments, {"PATH": os.environ["PATH"], **environment})


def run_within(
    seconds: float, arguments: Sequence[str], environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end with these environment variables."""
    command = [COMMAND, *arguments]
    if FORKS is None:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    with FORKS.start(command, Path.cwd(), _environment(environment)) as process:
        out, err = process.communicate(timeout=seconds)
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def health(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Ask for the health of a service, again and again until it answers, as a probe does.

    The command waits 3 s for an answer, and the service may pause for longer.
    """
    deadline = time.monotonic() + PATIENCE
    while "does not answer" in (asked := run("health", *arguments)).stderr and time.monotonic() < deadline:
        pass
    return asked


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a forked service: the same as a started service has after its imports."""
    return {"GRPC_VERBOSITY": "ERROR", **given}


def trainctl(server: Server, folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Fork a trainctl for this service, in the folder and with the environment of the test."""
    assert FORKS is not None, "see the fixture forked_services"
    environment = {**os.environ, "TRAINING_SERVICE_ADDRESS": server.address}
    return FORKS.start(("-m", "training_service.client.cli", *arguments), folder, environment)


def refusal(*arguments: str, **environment: str) -> str:
    """Run the command, which cannot start, and return its only error line."""
    ended = run(*arguments, **environment)
    assert ended.returncode == 2
    assert ended.stdout == ""
    [line] = [line for line in ended.stderr.splitlines() if line.startswith("training-service: ")]
    assert "Traceback" not in ended.stderr
    return line.removeprefix("training-service: ")
