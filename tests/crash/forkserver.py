"""Starts services as fast as a fork: all modules are already imported. `python -m tests.crash.forkserver`.

Each line on standard input is an order (`Order`, as JSON). The answer is the service's pid. When the service
has ended, a second answer is its exit code (-N for signal N). Then the next order is read.
"""

import ctypes
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from tests.crash.seams import Seams

Wrapper = Callable[["Seams", Path], None]

ROOT = Path(__file__).parents[2]
_PR_SET_PDEATHSIG = 1
_IMPORTED_LATE = {
    "sqlite": ("fsspec.implementations.local",),
    "processes": ("job_tracker.backends.process.backend", "job_tracker.backends.process.spool"),
    "kubernetes": ("job_tracker.backends.kubernetes.backend", "job_tracker.backends.kubernetes.preflight"),
}
"""Modules that a service imports only once it is configured, by the name of its seams."""


@dataclass(frozen=True, slots=True)
class Order:
    """A service to start: its command line, the files for its output and trace, and its faults."""

    arguments: list[str]
    log: str
    trace: str
    faults: str
    data: str
    """The service's data folder."""


class ForkServer:
    """The client of a fork server: runs one service at a time, with the given seams (calls.py)."""

    def __init__(self, wraps: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forkserver", *wraps],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,  # Ctrl-C must reach only the parent
        )

    def start(self, order: Order) -> int:
        """Start a service, and return its pid at once."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def wait(self) -> int:
        """Wait for the service to end, and return its exit code."""
        return self._answer()

    def close(self) -> None:
        """End the server. A service that still runs is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the fork server has ended"
        return int(line)


def main(wraps: Sequence[str]) -> None:
    """Fork until there are no more orders."""
    import training_service.main
    from tests.crash import calls
    from tests.support.imported import DASHBOARD
    from training_service.settings.settings import settings_model

    _die_with_parent()
    wrappers = [calls.wrapper(name) for name in wraps]
    for name in wraps:
        for module in _IMPORTED_LATE.get(name, ()):
            importlib.import_module(module)
    for module in DASHBOARD:
        importlib.import_module(module)
    settings_model()
    gc.freeze()  # a garbage collection in a service would copy all shared memory
    assert Path(training_service.main.__file__).is_relative_to(ROOT), "imported from other sources"
    answers = os.dup(1)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become_service(Order(**json.loads(line)), wrappers)
        os.write(answers, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))


def _become_service(order: Order, wrappers: Sequence[Wrapper]) -> NoReturn:
    from tests.crash import faults
    from tests.crash.seams import Seams
    from training_service.commands import app

    _die_with_parent()
    log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    code = 1
    try:
        seams = Seams(faults.parse(order.faults), Path(order.trace))
        for wrap in wrappers:
            wrap(seams, Path(order.data))
        code = app(order.arguments, standalone_mode=False) or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
