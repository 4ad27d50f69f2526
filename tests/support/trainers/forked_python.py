"""A program `python` for the groups of a service. Its processes are forked from one that has imported
PyTorch.

The service starts it, watches it and stops it as any other program. A process of a fork server does the work.
The program passes SIGTERM and SIGINT on to this process, and ends with its exit code. If the program is
killed, the process is killed, too.
"""

import json
import os
import select
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from job_tracker.common.config import DEFAULT_PATH
from tests.support.trainers.forkserver import LONGEST, ForkServer

_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys

channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
channel.connect({address!r})
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, _: channel.send(b"%d" % number))
order = dict(arguments=sys.argv[1:], folder=os.getcwd(), environment=dict(os.environ))
socket.send_fds(channel, [json.dumps(order).encode()], [1, 2])
code = int(channel.recv(16))
if code >= 0:
    sys.exit(code)
if -code != signal.SIGKILL:
    signal.signal(-code, signal.SIG_DFL)
os.kill(os.getpid(), -code)
"""


class ForkedPython:
    """A stand-in for `python` that forks prepared processes, and the threads that follow these processes."""

    def __init__(self, forks: Sequence[ForkServer]) -> None:
        self._forks = forks
        self._folder = tempfile.TemporaryDirectory()  # tmp_path is too long for the path of a socket
        folder = Path(self._folder.name)
        self.path = f"{folder}{os.pathsep}{DEFAULT_PATH}"
        """A PATH that begins with the folder of the stand-in."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(folder / "socket"))
        self._socket.listen()
        program = folder / "python"
        program.write_text(_PROGRAM.format(python=sys.executable, address=str(folder / "socket")))
        program.chmod(0o755)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """Stop the threads. All processes must have ended."""
        self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._socket.close()
        self._folder.cleanup()

    def _accept(self) -> None:
        with suppress(OSError):  # the shutdown raises this
            while True:
                channel, _ = self._socket.accept()
                self._threads.append(threading.Thread(target=self._follow, args=[channel]))
                self._threads[-1].start()

    def _follow(self, channel: socket.socket) -> None:
        with channel:
            message, descriptors, _, _ = socket.recv_fds(channel, LONGEST, 2)
            if not message:  # the program was killed before it sent its order
                return
            order = json.loads(message)
            server = self._forks[int(order["environment"].get("RANK", "0")) % len(self._forks)]
            try:
                pid = server.fork(order, *descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            process = os.pidfd_open(pid)
            _pass_signals(channel, process)
            os.close(process)
            code = server.reap(pid)
            with suppress(OSError):  # the program was killed
                channel.send(b"%d" % code)


def _pass_signals(channel: socket.socket, process: int) -> None:
    """Send the process the signals that arrive at the channel, until it has ended."""
    waited: list[int | socket.socket] = [process, channel]
    while process not in (ready := select.select(waited, [], [])[0]):
        with suppress(ConnectionResetError):
            if number := channel.recv(16):
                signal.pidfd_send_signal(process, int(number))
                continue
        assert channel in ready
        signal.pidfd_send_signal(process, signal.SIGKILL)
        waited = [process]
