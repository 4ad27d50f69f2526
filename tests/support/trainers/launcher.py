"""Real training processes, started as by the service: controlled only by their environment."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.support.ports import free_port

TRAIN = ("-m", "intent_classification.train")
PATIENCE = 240
"""Seconds until a process that should end counts as stuck.

The start of three processes of PyTorch took 14 to 46 s on 2 cores at a load of 12 to 20.
"""


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str


class Trained(NamedTuple):
    """The result of a training."""

    model: Path
    ends: list[Ended]
    """The ends of its processes, by rank."""


class Launcher:
    """Starts processes of `python` with `folder` as their home, and ends those that remain."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self._folder = folder
        self._python = python
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [self._python, *arguments],
            cwd=self._folder,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.environ.get("PYTHONPATH", ""),  # the code under test
                "HOME": str(self._folder),
                "OMP_NUM_THREADS": "1",
                "GROUP_TIMEOUT": "60",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def start_group(self, size: int, *arguments: str, **environment: str) -> list[subprocess.Popen[str]]:
        port = str(free_port())
        return [
            self.start(
                *arguments,
                WORLD_SIZE=str(size),
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                LOCAL_WORLD_SIZE=str(size),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
                **environment,
            )
            for rank in range(size)
        ]

    def run(self, *arguments: str, **environment: str) -> Ended:
        return end_of(self.start(*arguments, **environment))

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


def train(launcher: Launcher, size: int, data: str, model: Path, **variables: str) -> list[Ended]:
    """Train in a group of `size` processes, which must all succeed."""
    group = launcher.start_group(size, *TRAIN, TRAINING_DATA_URI=data, MODEL_URI=str(model), **variables)
    ends = [end_of(process) for process in group]
    assert [end.code for end in ends] == [0] * size, [end.stderr for end in ends]
    return ends


def end_of(process: subprocess.Popen[str], within: float = PATIENCE) -> Ended:
    """Wait for the end of the process, and return it with the output that was not read yet.

    `communicate` would bypass the buffers, and lose lines that a fast process wrote ahead of its reader.
    """
    assert process.stdout
    assert process.stderr
    with ThreadPoolExecutor() as readers:
        stdout, stderr = (readers.submit(stream.read) for stream in (process.stdout, process.stderr))
        try:
            process.wait(within)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(
                f"{process.args!r} still runs after {within} s. Its output: {stdout.result()!r}, "
                f"{stderr.result()!r}"
            ) from None
        return Ended(process.returncode, stdout.result(), stderr.result())


def first_line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline()
