"""A service that trainctl starts and stops: found, started once by two commands, and stopped."""

import os
import queue
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.trainctl import Trainctl
from training_service.client import connection
from training_service.client.cli import background, background_starter
from training_service.client.cli.background import BackgroundService
from training_service.client.cli.background_starter import start_of
from training_service.client.cli.commands import run
from training_service.client.connection import Connection
from training_service.client.errors import Unavailable


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The address of a service that does not run yet, for a user without any files."""
    for name in ("TRAINING_SERVICE_ADDRESS", "TRAINING_SERVICE_TOKEN", "TRAINING_SERVICE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    made = f"127.0.0.1:{free_port()}"
    for module in (connection, run):
        monkeypatch.setattr(module, "DEFAULT_ADDRESS", made)
    yield made
    BackgroundService(made).stop()


def ended(*processes: "subprocess.Popen[str]") -> list[tuple[int, str, str]]:
    found = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=PATIENCE)
            found.append((process.returncode, out, err))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return found


RUN = """
import sys
from training_service.client import connection
from training_service.client.cli.commands import run
connection.DEFAULT_ADDRESS = run.DEFAULT_ADDRESS = sys.argv.pop(1)
from training_service.client.cli import app
app(prog_name="trainctl")
"""


def test_two_commands_at_once_start_one_service_and_both_run_their_jobs(address: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained')")
    command = [sys.executable, "-c", RUN, address, "run", "train.py"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
    first, second = ended(*(subprocess.Popen(command, **pipes) for _ in range(2)))  # type: ignore[call-overload]
    for code, out, err in (first, second):
        assert (code, out) == (0, "trained\n"), err
    assert (first[2] + second[2]).count("no service ran at") == 1
    assert "To stop it: trainctl stop-service" in first[2] + second[2]
    data = tmp_path / "XDG_STATE_HOME" / "training-service"
    assert stat.S_IMODE((data / "operator-token").stat().st_mode) == 0o600
    assert "callers need a token" in (data / "background" / "service.log").read_text()
    assert not BackgroundService(address).is_wanted(Connection(address)), "it runs already"
    stopped = Trainctl(address)("stop-service")
    assert (stopped.exit_code, "running jobs go on" in stopped.stderr) == (0, True)
    again = Trainctl(address)("stop-service")
    assert (again.exit_code, "no service that trainctl has started is running" in again.stderr) == (1, True)


def test_a_service_is_started_only_for_callers_who_mean_none_in_particular(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = BackgroundService(address)
    assert service.is_wanted(Connection(address))
    assert not service.is_wanted(Connection("train.example:51001"))
    assert not service.is_wanted(Connection(address, ca="system"))
    monkeypatch.setattr(background, "stored_tokens", lambda: {address: "tst_of_a_tunnel"})
    assert not service.is_wanted(Connection(address))
    monkeypatch.undo()


@pytest.mark.parametrize("name", ["TRAINING_SERVICE_TOKEN", "TRAINING_SERVICE_TOKEN_FILE"])
def test_a_caller_with_a_token_means_a_certain_service(
    address: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "x")
    assert not BackgroundService(address).is_wanted(Connection(address))


def test_another_program_at_the_address_is_left_alone(address: str) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))):
        assert not BackgroundService(address).is_wanted(Connection(address))
        assert BackgroundService(address).start() is None


def test_a_service_that_does_not_start_is_explained_by_its_log(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = BackgroundService(address)
    monkeypatch.setenv("TRAINING_SERVICE_CONFIG", "missing.toml")
    with pytest.raises(Unavailable, match=r"missing\.toml: cannot be read .* see .*service\.log"):
        service.start()
    assert service.stop() is None


def test_a_record_of_a_process_that_is_gone_or_of_another_one_stops_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = BackgroundService(address)
    sent: list[int] = []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda _, number: sent.append(number))
    service._folder.mkdir(parents=True)
    for record in ("", "x y", "4194305 1", f"{os.getpid()} {start_of(os.getpid()) + 1}"):
        service._record.write_text(record)
        assert service.stop() is None
    assert not sent


def test_the_pid_is_recorded_before_the_service_begins(tmp_path: Path) -> None:
    record = tmp_path / "service.pid"
    program = f"print(open({str(record)!r}).read(), __import__('os').getpid())"
    command = [
        sys.executable,
        str(background_starter.__file__),
        str(record),
        sys.executable,
        "-c",
        program,
    ]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pid, _, own = out.split()
    assert pid == own


def test_while_another_command_starts_the_service_one_waits_although_it_listens(address: str) -> None:
    """A service already listens before it has written the token, which the second command needs."""
    host, port = address.split(":")
    service, answers = BackgroundService(address), queue.SimpleQueue[bool]()
    asking = threading.Thread(target=lambda: answers.put(service.is_wanted(Connection(address))))
    with socket.create_server((host, int(port))):
        with service._locked():
            asking.start()
            with pytest.raises(queue.Empty):
                answers.get(timeout=0.3)
        assert answers.get(timeout=PATIENCE) is False
    asking.join()
