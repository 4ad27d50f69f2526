"""A service that is restarted whenever it is killed, as by systemd or Kubernetes."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tests.crash.forkserver import ForkServer, Order
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from training_service.client import TrainingClient
from training_service.client.errors import DeadlineExceeded, Unavailable

T = TypeVar("T")

# After more failed starts in a row, as with an unreachable store, the service is not started again.
_FAILURES = 3


class Stuck(AssertionError):
    """The service makes no progress, or has ended by itself."""


class KeptService:
    """Runs from `with` to `stop`. `faults` returns the faults of each start, from 0 on (faults.py)."""

    client: TrainingClient

    def __init__(self, forks: ForkServer, folder: Path, faults: Callable[[int], str]) -> None:
        self.folder = folder
        self.exit_codes: list[int] = []
        self._forks = forks
        self._faults = faults
        self._address = f"127.0.0.1:{free_port()}"
        self._changed = threading.Condition()
        self._pid: int | None = None

    def __enter__(self) -> "KeptService":
        self.client = TrainingClient(self._address)
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()
        while self._keeper.is_alive():  # after a failure, without an orderly stop
            self._faults = lambda start: ""
            self._signal(signal.SIGTERM)
            self._keeper.join(timeout=1)

    def start(self) -> None:
        """Start the service. It is started again whenever it is killed, until `stop`."""
        start = len(self.exit_codes)
        self._keeper = threading.Thread(target=self._keep, name="keeper")
        self._keeper.start()
        while not self._is_serving(start) and len(self.exit_codes) == start:
            time.sleep(0.01)  # a refused client retries only after a second

    def ask(self, call: Callable[[TrainingClient], T]) -> T:
        """Repeat a call until there is an answer, and return it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return call(self.client)
            except (Unavailable, DeadlineExceeded) as error:
                if not self._keeper.is_alive() or time.monotonic() > deadline:
                    raise Stuck(f"no answer; the service ended with {self.exit_codes}") from error

    def stop(self) -> None:
        """Stop the service in good order, and again if it is killed in the meantime."""
        while self._keeper.is_alive():
            start = len(self.exit_codes)
            if not self._is_serving(start):
                time.sleep(0.01)  # the service does not handle signals yet
                continue
            self._signal(signal.SIGTERM)
            with self._changed:
                if not self._changed.wait_for(lambda start=start: len(self.exit_codes) > start, PATIENCE):  # type: ignore[misc]
                    raise Stuck("the service does not stop")
            if self.exit_codes[-1] == 0:
                self._keeper.join()
        if self.exit_codes[-1] != 0:
            raise Stuck(f"the service ended with {self.exit_codes}")

    def kill(self) -> None:
        """Kill the service at once."""
        self._signal(signal.SIGKILL)

    def log(self) -> str:
        """Return the output of all starts."""
        return "".join(file.read_text() for file in sorted(self.folder.glob("service-*.log")))

    def _keep(self) -> None:
        failures = 0
        while True:
            start = len(self.exit_codes)
            self._pid = self._forks.start(self._order(start, self._faults(start)))
            code = self._forks.wait()
            with self._changed:
                self._pid = None
                self.exit_codes.append(code)
                self._changed.notify_all()
            failures = failures + 1 if code != -signal.SIGKILL else 0
            if code == 0 or failures > _FAILURES:
                return

    def _order(self, start: int, fault: str) -> Order:
        return Order(
            arguments=["serve", "--config", str(self.folder / "config.toml"), "--address", self._address],
            log=str(self._log(start)),
            trace=str(self.folder / f"trace-{start:03}"),
            faults=fault,
            data=str(self.folder / "data"),
        )

    def _log(self, start: int) -> Path:
        return self.folder / f"service-{start:03}.log"

    def _is_serving(self, start: int) -> bool:
        if self._pid is None:
            return False  # the fork server has not sent the pid yet, or the service has ended
        log = self._log(start)
        return log.exists() and "serving at" in log.read_text()

    def _signal(self, number: int) -> None:
        with self._changed, suppress(ProcessLookupError):  # the process may have ended
            if self._pid is not None:
                os.kill(self._pid, number)
