"""A pytest plugin for runs that must not take long: `-p tests.bounded`.

`--seconds S` skips every test that has not begun S seconds after the first. `--repeat N` runs all tests N
times, round by round, and `--load` keeps every core busy meanwhile.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

_ROUND = "_round"


class Clock:
    """Runs from the first test on."""

    def __init__(self) -> None:
        self.begun = 0
        """The number of tests so far."""
        self._begin: float | None = None

    def seconds(self) -> float:
        """The time since the first call."""
        self._begin = self._begin or time.monotonic()
        return time.monotonic() - self._begin


_CLOCK = Clock()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bounded runs")
    group.addoption(
        "--seconds", type=float, default=float("inf"), help="begin no test after this many seconds"
    )
    group.addoption("--repeat", type=int, default=1, metavar="N", help="run all tests N times")
    group.addoption("--load", action="store_true", help="keep every core busy meanwhile")


@pytest.fixture(scope="session", autouse=True)
def _load(request: pytest.FixtureRequest) -> Iterator[None]:
    """With --load, run as many computing processes as there are cores."""
    wanted = len(os.sched_getaffinity(0)) if request.config.option.load else 0
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(wanted)]
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.fixture
def _round(request: pytest.FixtureRequest) -> int:
    """The number of the round in which the test runs, which is part of the test's name."""
    number: int = request.param
    return number


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for each round."""
    rounds = metafunc.config.option.repeat
    if rounds > 1:
        metafunc.fixturenames.append(_ROUND)
        metafunc.parametrize(
            _ROUND, range(1, rounds + 1), ids=lambda number: f"round {number}", indirect=True
        )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by round, so that all tests have run about equally often when time is up."""
    items.sort(key=lambda item: item.callspec.params.get(_ROUND, 0) if hasattr(item, "callspec") else 0)


def _is_over(item: pytest.Item) -> bool:
    return bool(_CLOCK.seconds() > item.config.option.seconds)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Skip further rounds when time is up."""
    if item.config.option.repeat > 1 and _is_over(item):
        return True
    _CLOCK.begun += 1
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test when time is up."""
    if _is_over(item):
        pytest.skip("time is up: left to the gate")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how far the rounds came."""
    if config.option.repeat > 1:
        wanted = terminalreporter._numcollected
        terminalreporter.line(f"{config.option.repeat} rounds: {_CLOCK.begun} of {wanted} tests had time")
