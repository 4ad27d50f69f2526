"""A link that counts the bytes that clients send to a server, and that can be cut."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_BUFFER = 64 << 10


class Link:
    """A relay of TCP on loopback.

    `sent` is the number of bytes that clients have sent to the server. `cuts` is the number of cuts so far.
    """

    def __init__(self, listener: socket.socket, server: str) -> None:
        host, port = listener.getsockname()
        self.address = f"{host}:{port}"
        self.sent = 0
        self.cuts = 0
        self._listener = listener
        self._server = server
        self._cut_at: int | None = None

    def cut_after(self, count: int) -> None:
        """Once clients have sent `count` further bytes, close the connection that sent the last of them.

        All other connections stay open, including those that are opened later.
        """
        self._cut_at = self.sent + count

    def serve(self) -> None:
        """Accept connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host, _, port = self._server.rpartition(":")
                server = socket.create_connection((host, int(port)))
                for source, target, counts in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass, args=(source, target, counts), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_BUFFER):
                target.sendall(data)
                if not counts:
                    continue
                self.sent += len(data)
                if self._cut_at is not None and self.sent >= self._cut_at:
                    self._cut_at = None
                    self.cuts += 1
                    break
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def link_to(server: str) -> Iterator[Link]:
    """Relay a free port of loopback to `server`, which is HOST:PORT, during the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = Link(listener, server)
        thread = threading.Thread(target=link.serve, daemon=True)
        thread.start()
        try:
            yield link
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
