"""A forked process behaves like one that was started."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.trainers.forkserver import Forked, ForkServer
from tests.support.trainers.launcher import Launcher, end_of, first_line_of

LATE = """
import atexit, sys, threading, time
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"), sys.exit(3))).start()
print("main", file=sys.stderr)
"""
PLACE = """
import __main__, os, sys
print(__name__, __main__.__name__, __main__.os is os, sys.argv, os.getcwd(), sys.stdin.read())
print({name: value for name, value in os.environ.items() if name != "LC_CTYPE"}, sys.path, sys.flags)
print(os.listdir("/proc/self/fd"), os.listdir("/proc/self/task") == [str(os.getpid())])
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    with Launcher(tmp_path) as launcher:
        yield launcher


@pytest.fixture
def forking(tmp_path: Path, forks: Sequence[ForkServer]) -> Iterator[Launcher]:
    with Launcher(tmp_path, forks=forks) as launcher:
        yield launcher


@pytest.mark.parametrize(
    "code",
    [
        "pass",
        "print('out'); print(7 / 0)",
        "import sys; sys.exit(5)",
        "import sys; sys.exit('enough')",
        "import os; print('lost'); os._exit(4)",
        "raise KeyboardInterrupt",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        LATE,
        PLACE,
    ],
)
def test_a_program_ends_the_same_way(forking: Launcher, launcher: Launcher, code: str) -> None:
    forked, started = (each.run("-c", code, "an argument", VALUE="1") for each in (forking, launcher))
    assert (forked.code, forked.stdout) == (started.code, started.stdout)
    assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


@pytest.mark.parametrize("named", ["-m", "path"])
def test_modules_and_files_find_what_lies_beside_them(
    forking: Launcher, launcher: Launcher, tmp_path: Path, named: str
) -> None:
    folder = tmp_path / "elsewhere" if named == "path" else tmp_path
    folder.mkdir(exist_ok=True)
    (folder / "beside.py").write_text("print('beside')\n")
    (folder / "program.py").write_text(f"import beside\n{PLACE}")
    program = (named, "program") if named == "-m" else (str(folder / "program.py"),)
    forked, started = (each.run(*program, "an argument") for each in (forking, launcher))
    assert forked == started
    assert forked.stdout.startswith("beside\n__main__ __main__ True")


def test_signals_reach_a_process_until_it_has_ended(forking: Launcher) -> None:
    process = forking.start("-c", "print('here', flush=True); import time; time.sleep(60)")
    assert isinstance(process, Forked)
    assert first_line_of(process) == "here\n"
    assert process.poll() is None
    process.kill()
    assert end_of(process) == (-signal.SIGKILL, "", "")
    process.kill()
    assert process.poll() == -signal.SIGKILL


def test_sets_have_another_order_in_the_next_rank_and_random_numbers_differ(forking: Launcher) -> None:
    code = "import random, numpy; print(hash('a'), random.random(), numpy.random.random())"
    processes = [forking.start("-c", code, RANK=str(rank)) for rank in range(3)]
    numbers = list(zip(*(end_of(process).stdout.split() for process in processes), strict=True))
    assert numbers[0][0] != numbers[0][1]
    assert [len({*each}) for each in numbers[1:]] == [3, 3]


def test_what_finds_other_libraries_is_started(forking: Launcher, tmp_path: Path) -> None:
    assert isinstance(forking.start("-c", "pass"), Forked)
    assert not isinstance(forking.start("-c", "pass", PYTHONPATH=str(tmp_path)), Forked)
    assert not isinstance(forking.start("-c", "pass", OMP_NUM_THREADS="2"), Forked)


def test_a_wait_for_imports_that_fail_ends_with_the_server() -> None:
    with closing(ForkServer(("no_such_module",))) as server, pytest.raises(AssertionError, match="has ended"):
        server.wait_for_imports()
