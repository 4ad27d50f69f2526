"""HTTP/2 frames that no gRPC client sends."""

import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS = 0, 1, 3, 4
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW = 4
_CANCEL = 8
_SEND_AT_ONCE = 1 << 16


def reset_streams(address: str, count: int, path: str = "/training.TrainingService/ListTrainingJobs") -> int:
    """Open `count` streams on a connection, and reset each at once.

    Return the number of streams that were sent before the server closed the connection.
    """
    block = _call(path)
    sent, frames = 0, b""
    with _connection(address) as connection:
        for number in range(count):
            stream = 2 * number + 1
            frames += _frame(_HEADERS, stream, block, _END_HEADERS)
            frames += _frame(_RESET, stream, struct.pack(">I", _CANCEL))
            if len(frames) >= _SEND_AT_ONCE or number == count - 1:
                try:
                    connection.sendall(frames)
                except OSError:
                    break
                sent, frames = number + 1, b""
    return sent


@contextmanager
def unread_calls(
    address: str, count: int, path: str, request: bytes, source: str = "127.0.0.1"
) -> Iterator[None]:
    """During the block, keep calls open on a connection from `source`, whose window of 0 bytes lets no byte
    of any answer through.
    """
    message = struct.pack(">BI", 0, len(request)) + request
    block = _call(path)
    with _connection(address, struct.pack(">HI", _INITIAL_WINDOW, 0), source) as connection:
        for stream in range(1, 2 * count, 2):
            connection.sendall(_frame(_HEADERS, stream, block, _END_HEADERS))
            connection.sendall(_frame(_DATA, stream, message, _END_STREAM))
        yield


def call_with(address: str, path: str, headers: Iterable[tuple[bytes, bytes]], request: bytes = b"") -> bool:
    """Make a call with exactly these headers. Return whether it was answered; False if the stream was reset
    or the connection was closed.
    """
    block = _call(path) + b"".join(b"\0" + _text(name) + _text(value) for name, value in headers)
    message = struct.pack(">BI", 0, len(request)) + request
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection, connection.makefile("rb") as answer:
        connection.sendall(_PREFACE + _frame(_SETTINGS, 0, b"") + _frame(_SETTINGS, 0, b"", _ACK))
        connection.sendall(_frame(_HEADERS, 1, block, _END_HEADERS))
        connection.sendall(_frame(_DATA, 1, message, _END_STREAM))
        with suppress(ConnectionResetError):
            while len(head := answer.read(9)) == 9:
                kind, flags, stream = struct.unpack(">3xBBI", head)
                answer.read(int.from_bytes(head[:3]))
                if stream == 1 and (kind == _RESET or (kind == _HEADERS and flags & _END_STREAM)):
                    return bool(kind == _HEADERS)
    return False


@contextmanager
def _connection(address: str, settings: bytes = b"", source: str = "127.0.0.1") -> Iterator[socket.socket]:
    """Open a connection during the block. `settings` is the content of its SETTINGS frame."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 30, (source, 0)) as connection:
        connection.sendall(_PREFACE + _frame(_SETTINGS, 0, settings) + _frame(_SETTINGS, 0, b"", _ACK))

        def forget() -> None:
            with suppress(OSError):
                while connection.recv(1 << 16):
                    pass

        reader = threading.Thread(target=forget)
        reader.start()
        try:
            yield connection
        finally:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            reader.join()


def _frame(kind: int, stream: int, payload: bytes, flags: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _call(path: str) -> bytes:
    """Return the headers of a gRPC call (RFC 7541: POST, http, and literals without indexing)."""
    names = ((4, b"", path), (1, b"", "test"), (31, b"", "application/grpc"), (0, b"te", "trailers"))
    return b"\x83\x86" + b"".join(
        (_integer(index, 4) if index else b"\0" + _text(name)) + _text(value.encode())
        for index, name, value in names
    )


def _text(value: bytes) -> bytes:
    return _integer(len(value), 7) + value


def _integer(value: int, bits: int) -> bytes:
    largest = (1 << bits) - 1
    if value < largest:
        return bytes([value])
    coded, left = bytes([largest]), value - largest
    while left >= 128:
        coded, left = coded + bytes([left % 128 + 128]), left // 128
    return coded + bytes([left])
