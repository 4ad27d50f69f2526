"""A wait for the end of a process that listens for others."""

import socket
import time

PAUSE = 0.02  # seconds between two connections to a process that closes each at once


def await_end(address: str) -> None:
    """Wait until nothing listens at HOST:PORT any more.

    A process whose part of a collective operation is done may still be read from by others. With this it ends
    after the one that all wait for.
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
