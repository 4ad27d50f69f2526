"""A wait for the end of a process that serves others."""

import socket
import time

PAUSE = 0.02  # seconds between two connections to a process that closes each at once


def await_end(address: str) -> None:
    """Wait until no process listens at HOST:PORT any more.

    Other processes may still read from a process whose part of a collective operation is done. With this
    wait, all processes end only after the process at HOST:PORT.
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
