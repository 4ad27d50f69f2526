"""A pytest plugin that makes tests slow: `-p tests.slow_hands`.

What a test does to a running program (kill, signal, cancel, submit) comes `--late` seconds late, as on a busy
machine. So a test fails that acts on a program which has gone on in the meantime.
"""

import functools
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest

from training_service.client import TrainingClient

_HANDS: Mapping[type, Sequence[str]] = {
    subprocess.Popen: ("kill", "terminate", "send_signal"),
    psutil.Process: ("kill", "terminate", "send_signal"),
    TrainingClient: ("cancel", "submit"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--late", type=float, default=3, help="seconds by which tests act late")


def pytest_configure(config: pytest.Config) -> None:
    for owner, names in _HANDS.items():
        for name in names:
            setattr(owner, name, _late(getattr(owner, name), config.getoption("late")))


def _late(call: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    @functools.wraps(call)
    def late(*given: Any, **named: Any) -> Any:
        if _is_of_a_test(sys._getframe(1)):
            time.sleep(seconds)
        return call(*given, **named)

    return late


def _is_of_a_test(caller: FrameType) -> bool:
    """Return whether a test calls, and not the support of the tests, which also ends what is left."""
    return Path(caller.f_code.co_filename).name.startswith("test_")
