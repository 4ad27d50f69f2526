"""A real `training-service serve` that is restarted whenever it ends, as by systemd or Kubernetes."""

import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.processes import Held

_START_SECONDS = 240.0
_STOP_SECONDS = 240.0
_PAUSE_SECONDS = 0.2
_MAX_MEMORY = 2 << 30
"""Bytes of data: if a hostile job exhausts the memory, it harms this service and not the machine."""
_SERVING = b"serving at"
_ORDERED = (0, -signal.SIGKILL)
_REFUSED = 2
_NO_STORE = re.compile(
    r"redis://\S+ \(prefix \w+\)(?: does not answer|: cannot be reached|: is still loading its data|"
    r": its changes cannot be followed)"
)
"""A service ends at its start if Redis does not answer or has just been started. Its service manager starts
it again.
"""


class Service:
    """One replica on a separate address."""

    def __init__(self, name: str, folder: Path, address: str) -> None:
        self.name = name
        self.address = address
        self.starts = 0
        self.by_itself: list[str] = []
        """The ends of its processes, except by a kill or a stop of the test."""
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False
        self._changed = threading.Condition()
        self._keeper = threading.Thread(target=self._keep, name=name, daemon=True)

    @property
    def pid(self) -> int | None:
        """The pid of its process, if it runs."""
        process = self._process
        return process.pid if process is not None else None

    def start(self) -> None:
        """Start the service. It is started again whenever it ends, until `stop` or `close`."""
        self._keeper.start()

    def wait_until_serving(self) -> None:
        """Wait until the service serves. Raises TimeoutError."""
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_serving():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} does not serve in time: {self.log()[-1000:]}")
            time.sleep(0.02)

    def end(self, number: int) -> None:
        """End the process with a signal, and wait until the next one serves."""
        with self._changed:
            start = self.starts
            self.signal(number)
            if not self._changed.wait_for(lambda: self.starts > start or self._is_over, _STOP_SECONDS):
                raise TimeoutError(f"{self.name} does not end on signal {number}")
        self.wait_until_serving()

    def signal(self, number: int) -> None:
        """Signal the process, if it runs."""
        with self._changed:
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGCONT)
                self._process.send_signal(number)

    def freeze(self, seconds: float) -> None:
        """Freeze the process for some seconds."""
        if (pid := self.pid) is None:
            return
        with Held(pid) as process:
            process.send(signal.SIGSTOP)
            try:
                time.sleep(seconds)
            finally:
                process.send(signal.SIGCONT)

    def stop(self) -> Iterator[str]:
        """Stop the service in good order and for good. Yield the problems."""
        self._is_over = True
        self.signal(signal.SIGTERM)
        self._keeper.join(_STOP_SECONDS)
        if self._keeper.is_alive():
            yield f"{self.name} does not stop within {_STOP_SECONDS:g} s"
            self.close()

    def close(self) -> None:
        """Kill the service for good."""
        self._is_over = True
        self.signal(signal.SIGKILL)
        if self._keeper.is_alive():
            self._keeper.join(_STOP_SECONDS)

    def log(self) -> str:
        """Return the output of the last process."""
        file = self._log(self.starts)
        return file.read_text(errors="replace") if file.exists() else ""

    def logs(self) -> list[Path]:
        """Return the files with the output of all processes."""
        return sorted(self._folder.glob(f"{self.name}-*.log"))

    def _keep(self) -> None:
        while not self._is_over:
            process = self._spawn()
            code = process.wait()
            with self._changed:
                self._process = None
                if code not in _ORDERED and not (code == _REFUSED and self._found_no_store()):
                    self.by_itself.append(f"{self.name} ended by itself with {code}: {self.log()[-500:]}")
                self._changed.notify_all()
            time.sleep(0 if self._is_over else _PAUSE_SECONDS)

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [str(Path(sys.executable).with_name("training-service")), "serve"]
        command += ["--config", str(self._folder / "config.toml"), "--address", self.address]
        with self._log(self.starts + 1).open("ab") as log, self._changed:
            # In a new session: Ctrl-C must reach only the test.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MAX_MEMORY, _MAX_MEMORY))
            self.starts += 1
            self._process = process
            self._changed.notify_all()
        return process

    def _log(self, start: int) -> Path:
        return self._folder / f"{self.name}-{start:04}.log"

    def _found_no_store(self) -> bool:
        log = self.log()
        return _SERVING.decode() not in log and bool(_NO_STORE.search(log))

    def _is_serving(self) -> bool:
        file = self._log(self.starts)
        if self.pid is None or not file.exists():
            return False
        with file.open("rb") as log:
            return _SERVING in log.read(1 << 16)
