"""Waits for the end of a process that serves other processes."""

import socket
import time

PAUSE = 0.02  # seconds between two connections, if the process closes each of them at once


def await_end(address: str) -> None:
    """Wait until no process listens at HOST:PORT any more.

    After the last collective operation, the process at HOST:PORT may still read from this process, although
    this process already has all results. So this process must not end first.
    """
    host, _, port = address.rpartition(":")
    while True:
        try:
            with socket.create_connection((host, int(port))) as connection:
                while connection.recv(4096):
                    pass
        except OSError:
            return
        time.sleep(PAUSE)
