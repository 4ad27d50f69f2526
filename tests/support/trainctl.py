"""Runs trainctl with a service."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.testing import CliRunner, Result

from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb
from training_service.client.cli import app


class Trainctl:
    """Runs trainctl with a service, in this process or as a separate one."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __call__(self, *arguments: str) -> Result:
        """Run trainctl in this process with its output in a pipe, without line wrapping."""
        return self._invoke(arguments, {"TTY_COMPATIBLE": "0", "COLUMNS": "500"})

    def on_terminal(self, *arguments: str) -> Result:
        """Run trainctl in this process as if on a terminal of 100 columns."""
        return self._invoke(arguments, {"TTY_COMPATIBLE": "1", "TERM": "xterm", "NO_COLOR": "1"})

    @contextmanager
    def process(self, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
        """Run trainctl as a process, which is killed at the end of the block.

        By default, its standard streams are pipes.
        """
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(
            [sys.executable, "-m", "training_service.client.cli", *arguments],
            env=os.environ | self._environment() | options.pop("env", {}),
            text=True,
            **(pipes | options),
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run trainctl as a process until it ends, and return its output."""
        with self.process(*arguments) as process:
            out, err = process.communicate(timeout=PATIENCE)
            return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def _invoke(self, arguments: tuple[str, ...], environment: dict[str, str]) -> Result:
        return CliRunner().invoke(
            app,
            arguments,
            env=self._environment() | environment,
            prog_name="trainctl",
            catch_exceptions=False,
        )

    def _environment(self) -> dict[str, str]:
        return {"TRAINING_SERVICE_ADDRESS": self._address, "COLUMNS": "100", "TZ": "UTC"}


HOSTILE_NAME = "[red]evil\x1b[2J$x$"
HOSTILE = "[red]evil\x1b[2J\nname"
DIAGNOSIS = pb.Diagnosis(summary="It ran out of memory.", detail="Killed", resolution="Use less.")
SUBMIT = ("submit", "bert", "--dataset", "questions", "--version", "3f2a")


def metadata(name: str) -> pb.TrainingJobMetadata:
    return pb.TrainingJobMetadata(algorithm="bert", name=name, dataset_id="questions")
