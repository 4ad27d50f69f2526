"""Fetches the files of an uploaded program into a pod. Its text is an argument of an init container.

usage: python3 -c TEXT FOLDER TREE

It runs with the Python and the grpcio of an image, and with nothing else of this project. The line that it
prints explains a failure, and is a part of the diagnosis.
"""

import hashlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NO_GRPC, REFUSED, UNREACHABLE, NOT_WRITTEN = 3, 4, 5, 6
"""Exit codes."""

_RPC = "/training.TrainingReporter/FetchProgram"
_PATIENCE_SECONDS = 300.0
_MOST_SECONDS = 600.0  # of one try
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_FINAL = ("FAILED_PRECONDITION", "INVALID_ARGUMENT", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED")


class Broken(Exception):
    """The stream ended early, or its content is not what the hashes say. A further try may help."""


def main(folder: str, tree: str) -> int:
    """Fetch the tree into `folder`, which is whole once it exists. Return the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))  # process 1 would ignore it
    try:
        import grpc
    except ImportError as error:
        _say(f"this image cannot fetch the program: {error}")
        return NO_GRPC
    os.umask(0)  # the program may run as another user than this container
    end, pause = time.monotonic() + _PATIENCE_SECONDS, _FIRST_PAUSE
    address = os.environ["REPORT_ADDRESS"]
    while True:
        try:
            _fetch(grpc, address, Path(folder), tree)
            return 0
        except grpc.RpcError as error:
            code = error.code().name
            problem, is_final = f"{code}: {error.details()}", code in _FINAL
        except Broken as error:
            problem, is_final = str(error), False
        except OSError as error:
            _say(f"the files of the program cannot be written: {error}")
            return NOT_WRITTEN
        if is_final or time.monotonic() > end:
            _say(f"the service at {address}: {problem}")
            return REFUSED if is_final else UNREACHABLE
        time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
        pause = min(2 * pause, _LONGEST_PAUSE)


def _say(problem: str) -> None:
    sys.stderr.write(f"{problem}\n")


def _fetch(grpc: Any, address: str, folder: Path, tree: str) -> None:
    part = folder.with_name(f"{folder.name}.part")
    for remains in (part, folder):  # of an earlier run of this container
        shutil.rmtree(remains, ignore_errors=True)
    part.mkdir()
    with _channel(grpc, address) as channel:
        metadata = (("authorization", "Bearer " + os.environ["REPORT_TOKEN"]),)
        messages = channel.unary_stream(_RPC)(b"", metadata=metadata, timeout=_MOST_SECONDS)
        _write(_Stream(messages), part, tree)
    part.rename(folder)


def _channel(grpc: Any, address: str) -> Any:
    ca = os.environ.get("REPORT_CA")
    if not ca:
        return grpc.insecure_channel(address)
    roots = None if ca == "system" else ca.encode()
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(roots))


class _Stream:
    """The content of all messages."""

    def __init__(self, messages: Iterator[bytes]) -> None:
        self._messages = messages
        self._rest = memoryview(b"")

    def read(self, size: int) -> memoryview:
        """Return at least one byte, and at most `size`. Raises Broken at the end."""
        while not self._rest:
            message = next(self._messages, None)
            if message is None:
                raise Broken("it ended the stream early")
            self._rest = _content(message)
        read, self._rest = self._rest[:size], self._rest[size:]
        return read

    def manifest(self) -> bytes:
        """Read up to the empty line."""
        text = b""
        while b"\n\n" not in text:
            text += self.read(1 << 20)
        end = text.index(b"\n\n")
        self._rest = memoryview(text[end + 2 :] + self._rest)
        return text[: end + 1]


def _content(message: bytes) -> memoryview:
    """Return field 1 of a FetchProgramResponse: its tag, its length as a varint, its bytes."""
    length, begin, shift = 0, 1, 0
    for byte in message[1:6]:
        length |= (byte & 127) << shift
        begin, shift = begin + 1, shift + 7
        if byte < 128:
            break
    if message[:1] != b"\n" or begin == 1 or len(message) != begin + length:
        raise Broken("it sent a message that this program does not know")
    return memoryview(message)[begin:]


def _write(stream: _Stream, folder: Path, tree: str) -> None:
    manifest = stream.manifest()
    if hashlib.sha256(manifest).hexdigest() != tree:
        raise Broken("it sent the manifest of another tree")
    for line in manifest.decode().removesuffix("\n").split("\n"):
        mode, size, sha256, path = line.split(" ", 3)
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        left, digest = int(size), hashlib.sha256()
        with place.open("xb") as file:
            while left:
                piece = stream.read(left)
                left -= len(piece)
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != sha256:
            raise Broken(f"it sent another content for {path}")
        place.chmod(0o777 if mode == "755" else 0o666)  # only this pod sees the files


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
