"""A service on this machine, which `trainctl run` starts in the background if none runs.

The service is `training-service serve` with its default data folder. Its callers need the operator's token,
which only this user can read. So on a machine with several users, other users cannot run programs through
this service. The folder `training-service/background` in XDG_STATE_HOME (by default, `~/.local/state`) has
these files:

    lock            held while a service is started, so that two commands do not start two services
    service.pid     the service's pid; see background_starter.py
    service.log     its log
"""

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc

from training_service.client.channel import open_channel
from training_service.client.cli import background_starter
from training_service.client.cli.background_starter import start_of
from training_service.client.connection import DEFAULT_ADDRESS, Connection
from training_service.client.credentials import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, stored_tokens
from training_service.client.errors import ServerError, Unavailable

_START_SECONDS = 120.0
"""A start needs 2 s of CPU time, which may take long on a busy machine."""
_LOOK_SECONDS = 0.2
_LAST_LINES = 5
_CONFIG_VARIABLE = "TRAINING_SERVICE_CONFIG"


class BackgroundService:
    """The background service of this user, which trainctl starts and stops."""

    def __init__(self, address: str = DEFAULT_ADDRESS) -> None:
        """`address` is an address of this machine."""
        self.address = address
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        self._data = Path(home) / "training-service"
        self._folder = self._data / "background"
        self._record = self._folder / "service.pid"
        self.log = self._folder / "service.log"

    def is_wanted(self, connection: Connection) -> bool:
        """Return whether a background service has to be started.

        This is so if no service listens at `address`, and the caller has not chosen another service. A caller
        chooses another service by another address, by files of TLS, or by a token. While another command
        starts the background service, this method waits, because the service listens before it has written
        the token.
        """
        if connection != Connection(self.address):
            return False
        if self._listens():
            self._await_start()
            return False
        has_token = any(map(os.environ.get, (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE)))
        return not (has_token or self.address in stored_tokens())

    def start(self) -> int | None:
        """Start a service, and wait until it answers.

        Return the service's pid; None if another command has started the service. Raises Unavailable, with
        the end of the service's log, if the service does not start.
        """
        try:
            with self._locked():
                return None if self._listens() else self._start()
        except OSError as error:
            raise Unavailable(f"no service can be started in {self._folder}: {error.strerror}") from error

    def stop(self, timeout: float = 60.0) -> int | None:
        """Stop the service that `start` has started, and return its pid; None if it does not run.

        Running jobs continue. Raises ServerError if the service does not stop within `timeout` seconds.
        """
        found = self._process()
        if found is None:
            return None
        pid, handle = found
        try:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGTERM)
            if not select.select([handle], [], [], timeout)[0]:
                raise ServerError(f"the service, pid {pid}, does not stop; see {self.log}")
        finally:
            os.close(handle)
        self._record.unlink(missing_ok=True)
        return pid

    def _start(self) -> int:
        with self.log.open("ab") as log:
            begin = log.tell()
            process = subprocess.Popen(
                self._command(),
                cwd=self._folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in this terminal must not stop the service
            )
        end = time.monotonic() + _START_SECONDS
        with open_channel(Connection(self.address)) as channel:
            ready = grpc.channel_ready_future(channel)
            try:
                while process.poll() is None and time.monotonic() < end:
                    with suppress(grpc.FutureTimeoutError):
                        ready.result(timeout=_LOOK_SECONDS)
                        # The answer may come from another program that has taken the port. In that case, our
                        # process ends by itself.
                        if process.poll() is None:
                            return process.pid
            finally:
                ready.cancel()
        raise Unavailable(f"the service that was started does not answer: {self._last_lines(begin)}")

    def _command(self) -> list[str]:
        host, _, port = self.address.rpartition(":")
        serve = ["-P", "-m", "training_service", "serve", "--address", f"{host}:{port}"]
        return [
            *(sys.executable, "-I", "-S", background_starter.__file__, str(self._record)),
            *(sys.executable, *serve),
            *("--data-dir", str(self._data), "--set", "auth.loopback=token"),
        ]

    def _await_start(self) -> None:
        """If another command of this user is starting the service, wait until it has done so."""
        with suppress(OSError):  # without the folder, no command starts a service
            if (self._folder / "lock").exists():
                with self._locked():
                    pass

    def _listens(self) -> bool:
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
        except OSError:
            return False
        return True

    def _process(self) -> tuple[int, int] | None:
        """Return the pid of the background service and an open pidfd; None if no such service runs."""
        try:
            pid, start = map(int, self._record.read_text().split())
            handle = os.pidfd_open(pid)
        except (OSError, ValueError):
            return None
        with suppress(OSError):
            if start_of(pid) == start:
                return pid, handle
        os.close(handle)
        return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _last_lines(self, begin: int) -> str:
        with self.log.open("rb") as file:
            file.seek(begin)
            lines = file.read(1 << 20).decode(errors="replace").splitlines()
        return " / ".join([*lines[-_LAST_LINES:], f"see {self.log}"])


def _environment() -> dict[str, str]:
    """Return the environment for the service.

    The path of the configuration is absolute, because the service runs in another folder.
    """
    environment = dict(os.environ)
    if file := environment.get(_CONFIG_VARIABLE):
        environment[_CONFIG_VARIABLE] = str(Path(file).absolute())
    return environment
