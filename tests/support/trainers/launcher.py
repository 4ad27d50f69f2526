"""Real training processes, started as by the service: controlled only by their environment."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import IO, NamedTuple

from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.trainers import forkserver
from tests.support.trainers.forkserver import ForkServer

TRAIN = ("-m", "intent_classification.train")

_ROOT = Path(__file__).parents[3]
_PYTHONPATH = os.environ.get("PYTHONPATH", "").split(os.pathsep)


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str


class Trained(NamedTuple):
    """The result of a training run."""

    model: Path
    ends: list[Ended]
    """The ends of the training's processes, by rank."""


class Launcher:
    """Starts processes of `python` with `folder` as their home. At the end, it ends those that still run.

    With fork servers, processes whose environment allows it are forked, because importing PyTorch takes
    longer than most of them run. Neighbouring ranks are forked by different servers, so that sets have
    different orders in them.
    """

    def __init__(self, folder: Path, python: str = sys.executable, forks: Sequence[ForkServer] = ()) -> None:
        self._folder = folder
        self._python = python
        self._forks = forks
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),  # the code under test
            "HOME": str(self._folder),
            "OMP_NUM_THREADS": "1",
            "GROUP_TIMEOUT": "600",
            "CHECKPOINT_EVERY_SECONDS": "100000",  # steps decide alone when a checkpoint is due
            "PYTHONFAULTHANDLER": "1",  # see end_of
            **variables,
        }
        process: subprocess.Popen[str]
        if self._forks and _finds_the_same_libraries(environment):
            server = self._forks[int(environment.get("RANK", "0")) % len(self._forks)]
            process = server.start(arguments, self._folder, environment)
        else:
            process = subprocess.Popen(
                [self._python, *arguments],
                cwd=self._folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        self._started.append(process)
        return process

    def start_group(self, size: int, *arguments: str, **environment: str) -> list[subprocess.Popen[str]]:
        """Start `size` ranks. They are a group of one instance, unless the environment says otherwise."""
        group = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": free_port()}
        common = {name: str(value) for name, value in group.items()} | {"MASTER_ADDR": "127.0.0.1"}
        return [
            self.start(*arguments, **{**common, "RANK": str(rank), "LOCAL_RANK": str(rank), **environment})
            for rank in range(size)
        ]

    def run(self, *arguments: str, **environment: str) -> Ended:
        return end_of(self.start(*arguments, **environment))

    def __enter__(self) -> "Launcher":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


def _finds_the_same_libraries(environment: Mapping[str, str]) -> bool:
    """Return whether a process with this environment would import what the fork servers have imported."""
    known = {"", str(_ROOT), str(_ROOT / "trainer_images"), *_PYTHONPATH}
    return (
        environment.items() >= forkserver.ENVIRONMENT.items()
        and {*environment["PYTHONPATH"].split(os.pathsep)} <= known
    )


def train(launcher: Launcher, size: int, data: str, model: Path, **variables: str) -> list[Ended]:
    """Train in a group of `size` processes, which must all succeed."""
    group = launcher.start_group(size, *TRAIN, TRAINING_DATA_URI=data, MODEL_URI=str(model), **variables)
    ends = [end_of(process) for process in group]
    assert [end.code for end in ends] == [0] * size, [end.stderr for end in ends]
    return ends


def end_of(process: subprocess.Popen[str], within: float = PATIENCE) -> Ended:
    """Wait for the end of the process, and return it with the output that was not read yet.

    A process that neither ends nor prints for `within` seconds (or for up to twice as long) is aborted, so
    that it writes the stack of each of its threads.

    This function does not use `communicate`, which would bypass the buffers, and lose lines that a fast
    process wrote ahead of its reader.
    """
    assert process.stdout
    assert process.stderr
    printed = Event()
    with ThreadPoolExecutor() as readers:
        stdout, stderr = (readers.submit(_read, each, printed) for each in (process.stdout, process.stderr))
        while not _has_ended(process, within):
            if printed.is_set():
                printed.clear()
                continue
            process.send_signal(signal.SIGABRT)
            _has_ended(process, 10)
            process.kill()
            raise AssertionError(
                f"{process.args!r} has neither ended nor printed anything for {within} s. Its output: "
                f"{stdout.result()!r}, {stderr.result()!r}"
            )
        return Ended(process.returncode, stdout.result(), stderr.result())


def _read(stream: IO[str], printed: Event) -> str:
    lines = []
    for line in stream:
        lines.append(line)
        printed.set()
    return "".join(lines)


def _has_ended(process: subprocess.Popen[str], within: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(within)
        return True
    return False


def first_line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline()
