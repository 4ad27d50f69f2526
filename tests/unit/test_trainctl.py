"""Ctrl-C in trainctl before there is a job."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.patience import PATIENCE
from training_service._generated import program_service_pb2_grpc
from training_service._generated.program_service_pb2 import TreeStatus

_SCRIPT = "from training_service.trainctl import main; main()"  # as the script that pip installs


@contextmanager
def started(folder: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as trainctl:
        try:
            yield trainctl
        finally:
            trainctl.kill()


def interrupted(trainctl: subprocess.Popen[str]) -> str:
    """Press Ctrl-C, and return what trainctl says."""
    trainctl.send_signal(signal.SIGINT)
    _, said = trainctl.communicate(timeout=PATIENCE)
    assert trainctl.returncode == 130
    return said


class Silent(program_service_pb2_grpc.ProgramServiceServicer):
    """Knows no tree, and does not answer uploads until `may_answer`."""

    def __init__(self) -> None:
        self.upload_has_begun, self.may_answer = threading.Event(), threading.Event()

    def FindTree(self, request: Any, context: Any) -> TreeStatus:  # noqa: N802 - the proto names it
        return TreeStatus()

    def PutManifest(self, requests: Any, context: Any) -> TreeStatus:  # noqa: N802
        self.upload_has_begun.set()
        self.may_answer.wait(PATIENCE)
        return TreeStatus()

    def UploadFiles(self, requests: Any, context: Any) -> TreeStatus:  # noqa: N802
        return self.PutManifest(requests, context)


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
    silent = Silent()
    with ThreadPoolExecutor() as threads:
        server = grpc.server(threads)
        program_service_pb2_grpc.add_ProgramServiceServicer_to_server(silent, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            with started(folder, "run", "--address", address, "train.py") as trainctl:
                assert silent.upload_has_begun.wait(PATIENCE)
                said = interrupted(trainctl)
        finally:
            silent.may_answer.set()
            server.stop(None).wait()
    assert said.startswith("trainctl: interrupted. If the job was queued by then, it goes on. To repeat ")
    assert said.count("\n") == 1
