"""How long a test waits for the end of a training process."""

import io
import signal
import subprocess
from collections.abc import Iterator
from threading import Event
from typing import Any, cast

import pytest

from tests.support.trainers.launcher import end_of


class FakeProcess:
    """A process that prints some lines, one in each wait for its end, and then ends or says nothing more."""

    args = ("train",)
    returncode = 0

    def __init__(self, *lines: str, is_stuck: bool) -> None:
        self.stdout = self._printed(lines)
        self.stderr = io.StringIO("")
        self.signals: list[int] = []
        self._waits = 0
        self._is_stuck = is_stuck
        self._are_wanted, self._were_read = ([Event() for _ in lines] for _ in range(2))
        self._ended = Event()

    def _printed(self, lines: tuple[str, ...]) -> Iterator[str]:
        for line, is_wanted, was_read in zip(lines, self._are_wanted, self._were_read, strict=True):
            assert is_wanted.wait(60)
            yield line
            was_read.set()
        assert self._ended.wait(60)

    def wait(self, timeout: float) -> int:
        if self._waits < len(self._were_read):
            self._are_wanted[self._waits].set()
            assert self._were_read[self._waits].wait(60)
        elif not self._is_stuck or signal.SIGABRT in self.signals:
            self._ended.set()
            return 0
        self._waits += 1
        raise subprocess.TimeoutExpired(self.args, timeout)

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def kill(self) -> None:
        self.signals.append(signal.SIGKILL)
        self._ended.set()


def as_process(fake: FakeProcess) -> "subprocess.Popen[str]":
    return cast("subprocess.Popen[str]", cast("Any", fake))


def test_a_process_that_continues_to_print_is_not_stuck() -> None:
    process = FakeProcess("trained one\n", "trained two\n", is_stuck=False)
    assert end_of(as_process(process), within=1) == (0, "trained one\ntrained two\n", "")
    assert process.signals == []


def test_a_process_that_neither_ends_nor_prints_is_aborted_and_its_output_is_shown() -> None:
    process = FakeProcess("trained one\n", is_stuck=True)
    with pytest.raises(AssertionError, match=r"neither ended nor printed anything for 1 s.*trained one"):
        end_of(as_process(process), within=1)
    assert process.signals[0] == signal.SIGABRT
