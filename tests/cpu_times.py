"""A pytest plugin that shows which tests cost CPU time: `-p tests.cpu_times`.

On a busy machine, the duration of a test says little about its cost. The CPU time of a test includes all
processes that it starts, even detached ones, if this machine lets us make a cgroup. Otherwise, it includes
only processes that have ended.
"""

import atexit
import os
import resource
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import pytest

_CGROUPS = Path("/sys/fs/cgroup/cpuacct")
_SHOWN = 40


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-times", metavar="FILE", help="write the CPU seconds of each test into the file, too"
    )


class CpuTimes:
    """The CPU time of each test, and of the work outside of tests."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read
        self.tests: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Add the cost of the test and its fixtures, including shared ones that it is the first to use."""
        begin = self._read()
        answer = yield
        self.tests[item.nodeid] = self.tests.get(item.nodeid, 0) + self._read() - begin
        return answer

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        """Show the files and the tests with the most CPU time."""
        files = defaultdict[str, float](float)
        for test, seconds in self.tests.items():
            files[test.partition("::")[0]] += seconds
        total = sum(files.values())
        terminalreporter.section("CPU seconds")
        terminalreporter.line(
            f"{total:8.1f} all tests; {self._read() - total:.1f} besides: start, collection"
        )
        for table in (files, self.tests):
            for name, seconds in sorted(table.items(), key=lambda row: -row[1])[:_SHOWN]:
                terminalreporter.line(f"{seconds:8.2f} {name}")
        if config.option.cpu_times:
            rows = (f"{seconds:.3f}\t{test}\n" for test, seconds in self.tests.items())
            Path(config.option.cpu_times).write_text("".join(rows))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuTimes(_of_a_cgroup() or _of_ended_processes))


def _of_ended_processes() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _of_a_cgroup() -> Callable[[], float] | None:
    """Move this process into a new cgroup for it and its children. Return a function to read its CPU time."""
    group = _CGROUPS / f"tests-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return None
    atexit.register(_leave, group)
    return lambda: int((group / "cpuacct.usage").read_text()) / 1e9


def _leave(group: Path) -> None:
    """Remove the cgroup, unless a process is left in it."""
    with suppress(OSError):
        (group.parent / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()
