"""Ctrl-C in trainctl before there is a job."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 60
_SCRIPT = "from training_service.trainctl import main; main()"  # as the script that pip installs


def started(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupted(trainctl: subprocess.Popen[str]) -> str:
    """Press Ctrl-C, and return what trainctl says."""
    trainctl.send_signal(signal.SIGINT)
    _, said = trainctl.communicate(timeout=SECONDS)
    assert trainctl.returncode == 130
    return said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a user."""
    made = tmp_path / "project"
    made.mkdir()
    (made / "train.py").write_text("print(1)")
    return made


def test_an_interrupt_of_the_imports_is_one_line(folder: Path, tmp_path: Path) -> None:
    slow = tmp_path / "first" / "grpc"
    slow.mkdir(parents=True)
    (slow / "__init__.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(600)\n")
    with started(folder, "run", "train.py", PYTHONPATH=str(slow.parent)) as trainctl:
        assert trainctl.stdout is not None
        assert trainctl.stdout.readline() == "importing\n"
        assert interrupted(trainctl) == "trainctl: interrupted\n"


def test_an_interrupt_of_the_upload_is_one_line_with_what_to_do(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(SECONDS)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with started(folder, "run", "--address", address, "train.py") as trainctl:
            connection, _ = silent.accept()
            with connection:
                said = interrupted(trainctl)
    assert said.startswith("trainctl: interrupted. If the job was queued by then, it goes on. To repeat ")
    assert said.count("\n") == 1
