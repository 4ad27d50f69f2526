"""Groups of processes that train with checkpoints."""

import subprocess
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tests.support.trainers import launcher
from tests.support.trainers.launcher import Ended, Launcher

PROGRAM = str(Path(launcher.__file__).parent / "programs" / "checkpoints.py")
PATIENCE = 200
"""Seconds. On a busy machine, the start of PyTorch alone takes many seconds."""

end_of = partial(launcher.end_of, within=PATIENCE)


class Job:
    """A job whose attempts share a folder of checkpoints."""

    def __init__(self, launcher: Launcher, uri: str) -> None:
        self._launcher = launcher
        self._uri = uri
        self._attempt = 0

    def start(self, size: int, **variables: str) -> list[subprocess.Popen[str]]:
        """Start the next attempt with a group of this size."""
        self._attempt += 1
        settings = {"CHECKPOINT_URI": self._uri, "JOB_ATTEMPT": str(self._attempt)}
        every = {"CHECKPOINT_EVERY_STEPS": "3"}
        return self._launcher.start_group(size, PROGRAM, **{**settings, **every, **variables})

    def run(self, size: int, **variables: str) -> list[Ended]:
        """Run the next attempt, which must succeed, to its end."""
        ends = [end_of(process) for process in self.start(size, **variables)]
        assert [end.code for end in ends] == [0] * size, [end.stderr for end in ends]
        return ends


def losses(lines: Iterable[str]) -> dict[int, str]:
    """Return the loss of each step in printed lines, as text that is exact to the last bit."""
    printed = [line.split() for line in lines]
    return {int(words[0]): words[1] for words in printed if words[0].isdecimal()}


def weights(end: Ended) -> str:
    return next(line for line in end.stdout.splitlines() if line.startswith("weights"))


def read_until(process: subprocess.Popen[str], step: int) -> list[str]:
    """Return the output of the process up to the line of this step."""
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(f"{step} "):
            break
    return lines
