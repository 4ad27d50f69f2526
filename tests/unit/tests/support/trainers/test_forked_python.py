"""For its parent, the forked `python` behaves like a started process."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.patience import PATIENCE
from tests.support.trainers.forked_python import ForkedPython

WAITING = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(forked_python: ForkedPython, tmp_path: Path) -> Iterator[Start]:
    started = []

    def start(code: str, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        python = f"{forked_python.path.split(os.pathsep)[0]}/python"
        process = subprocess.Popen(
            [python, "-c", code, *arguments],
            env={**environment, "HOME": str(tmp_path)},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def pid_of(process: "subprocess.Popen[str]") -> int:
    assert process.stdout
    return int(process.stdout.readline())


def test_it_has_the_arguments_the_place_and_the_imports_of_the_process(start: Start, tmp_path: Path) -> None:
    code = "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ['RANK'], 'torch' in sys.modules)"
    process = start(code, "an argument", RANK="1")
    assert process.communicate()[0] == f"['an argument'] {tmp_path} 1 True\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("end", "code"),
    [("sys.exit(5)", 5), ("os._exit(200)", 200), ("7 / 0", 1), ("os.kill(os.getpid(), 9)", -signal.SIGKILL)],
)
def test_it_ends_as_the_process_does(start: Start, end: str, code: int) -> None:
    process = start(f"import os, sys; print('here', flush=True); {end}")
    assert process.communicate()[0].startswith("here\n")
    assert process.returncode == code


def test_it_passes_signals_on(start: Start) -> None:
    ending = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); "
    process = start(ending + WAITING)
    pid_of(process)
    process.terminate()
    assert process.wait(timeout=PATIENCE) == 3
    ended = start(WAITING)
    pid_of(ended)
    ended.terminate()
    assert ended.wait(timeout=PATIENCE) == -signal.SIGTERM


def test_if_it_is_killed_so_is_the_process(start: Start) -> None:
    process = start(WAITING)
    forked = psutil.Process(pid_of(process))
    assert forked.is_running()
    process.kill()
    forked.wait(timeout=PATIENCE)
