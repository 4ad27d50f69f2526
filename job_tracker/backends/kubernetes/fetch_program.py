"""Fetches the files of an uploaded program into a pod.

The text of this file is an argument of an init container.

usage: python3 -c TEXT FOLDER TREE [CACHE PROJECT MAX_BYTES]

Contents of files are kept in CACHE/PROJECT, named by their hashes. They are used only after the service has
accepted the attempt's token, and their hashes are checked during the copy. If the cache fails, the program
continues without it.

This program uses only Python and grpcio, which the image has, and no other module of this project. If the
fetch fails, it prints a line that explains the failure and becomes part of the diagnosis.
"""

import contextlib
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
_ALL, _MANIFEST_ONLY = b"", b"\x08\x01"
"""The FetchProgramRequest without and with `manifest_only`."""
_PATIENCE_SECONDS = 300.0
_MOST_SECONDS = 600.0  # of one try
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_PIECE = 1 << 20
_TIDY_SECONDS = 3600.0
"""The shortest time between two runs of `Cache.tidy`. The times of last use have the same resolution."""
_MOST_OF_VOLUME = 0.9
_FINAL = ("FAILED_PRECONDITION", "INVALID_ARGUMENT", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED")


class Broken(Exception):
    """The stream ended early, or its content does not match the hashes. Another try may help."""


def main(folder: str, tree: str, cache: str = "", project: str = "", max_bytes: str = "0") -> int:
    """Fetch the tree into `folder`, which exists only once it is complete. Return the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))  # process 1 would ignore it
    try:
        import grpc
    except ImportError as error:
        _say(f"this image cannot fetch the program: {error}")
        return NO_GRPC
    os.umask(0)  # the program and this container may run as different users
    end, pause = time.monotonic() + _PATIENCE_SECONDS, _FIRST_PAUSE
    address = os.environ["REPORT_ADDRESS"]
    kept = Cache(Path(cache), project, int(max_bytes)) if cache else None
    while True:
        try:
            _fetch(grpc, address, Path(folder), tree, kept)
            if kept:
                kept.tidy()
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


class Cache:
    """Contents of files in a folder of the project, on a volume that other pods use at the same time.

    After an OSError, such as that of a full volume, this pod does not use the cache any more.
    """

    def __init__(self, root: Path, project: str, max_bytes: int) -> None:
        self._root, self._folder, self._max_bytes = root, root / project, max_bytes
        self._works = True

    def copy(self, sha256: str, size: int, place: Path) -> bool:
        """Write the content with this hash to `place`.

        Return False if the cache does not have it. Raises OSError only for faults of `place`.
        """
        kept = self._folder / sha256
        digest, left = hashlib.sha256(), size
        with place.open("xb") as file:
            for piece in self._pieces(kept):
                digest.update(piece)
                left -= len(piece)
                if left < 0:
                    break
                file.write(piece)
        if left == 0 and digest.hexdigest() == sha256:
            return True
        place.unlink()
        with self._guarded():
            if self._works and kept.exists():
                _say(f"the cached file {sha256} does not match its hash, and is removed")
                kept.unlink(missing_ok=True)
        return False

    def keep(self, sha256: str, place: Path) -> None:
        """Add the content of the file `place`, which has this hash, to the cache."""
        kept = self._folder / sha256
        part = self._folder / f".{sha256}.{os.urandom(8).hex()}"
        with self._guarded():
            if not self._works or kept.exists():
                return
            self._folder.mkdir(exist_ok=True)
            try:
                shutil.copyfile(place, part)
                part.rename(kept)
            finally:
                part.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove incomplete contents that are older than an hour.

        While the cache of all projects together is too large, remove its least recently used contents, too.
        Calls within an hour after such a call, of any pod, do nothing.
        """
        with self._guarded():
            stamp = self._root / ".tidied"
            if not self._works or (stamp.exists() and time.time() - stamp.stat().st_mtime < _TIDY_SECONDS):
                return
            stamp.touch()
            found = []
            for path in self._root.glob("*/*"):
                with contextlib.suppress(FileNotFoundError):  # another pod removes files, too
                    status = path.lstat()
                    found.append((status.st_mtime, status.st_size, path))
            space = os.statvfs(self._root)
            total = sum(size for _, size, _ in found)
            allowed = min(self._max_bytes, _MOST_OF_VOLUME * (total + space.f_bavail * space.f_frsize))
            old = time.time() - _TIDY_SECONDS
            for used, size, path in sorted(found):
                is_left_over = path.name.startswith(".") and used < old
                if total > allowed or is_left_over:
                    path.unlink(missing_ok=True)
                    total -= size

    def _pieces(self, kept: Path) -> Iterator[bytes]:
        if not self._works:
            return
        with self._guarded(), contextlib.suppress(FileNotFoundError):
            file = os.open(kept, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if time.time() - os.fstat(file).st_mtime > _TIDY_SECONDS:
                    with contextlib.suppress(OSError):  # a read-only volume can still be read
                        os.utime(file)
                while piece := os.read(file, _PIECE):
                    yield piece
            finally:
                os.close(file)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._works = False
            _say(f"the cache of programs is not used: {error}")


def _fetch(grpc: Any, address: str, folder: Path, tree: str, cache: Cache | None) -> None:
    part = folder.with_name(f"{folder.name}.part")
    with _channel(grpc, address) as channel:
        metadata = (("authorization", "Bearer " + os.environ["REPORT_TOKEN"]),)

        def call(request: bytes) -> "_Stream":
            return _Stream(channel.unary_stream(_RPC)(request, metadata=metadata, timeout=_MOST_SECONDS))

        _clear(part, folder)  # an earlier run of this container may have left them
        if cache is None or not _copied(call(_MANIFEST_ONLY), part, tree, cache):
            _clear(part)
            _write(call(_ALL), part, tree, cache)
    part.rename(folder)


def _clear(part: Path, *more: Path) -> None:
    for remains in (part, *more):
        shutil.rmtree(remains, ignore_errors=True)
    part.mkdir()


def _channel(grpc: Any, address: str) -> Any:
    ca = os.environ.get("REPORT_CA")
    if not ca:
        return grpc.insecure_channel(address)
    roots = None if ca == "system" else ca.encode()
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(roots))


class _Stream:
    """A stream of messages, read as one sequence of bytes."""

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
        """Read and return the manifest, which ends with an empty line."""
        text = b""
        while b"\n\n" not in text:
            text += self.read(1 << 20)
        end = text.index(b"\n\n")
        self._rest = memoryview(text[end + 2 :] + self._rest)
        return text[: end + 1]


def _content(message: bytes) -> memoryview:
    """Return the bytes of field 1 of a FetchProgramResponse.

    The message consists of the tag of the field, the number of bytes as a varint, and the bytes.
    """
    length, begin, shift = 0, 1, 0
    for byte in message[1:6]:
        length |= (byte & 127) << shift
        begin, shift = begin + 1, shift + 7
        if byte < 128:
            break
    if message[:1] != b"\n" or begin == 1 or len(message) != begin + length:
        raise Broken("it sent a message that this program does not know")
    return memoryview(message)[begin:]


def _files(stream: _Stream, folder: Path, tree: str) -> Iterator[tuple[int, str, Path]]:
    """Make the folder of each file, and yield the file's size, hash and place, where the caller then writes
    the file.

    After that, set the mode of the file.
    """
    manifest = stream.manifest()
    if hashlib.sha256(manifest).hexdigest() != tree:
        raise Broken("it sent the manifest of another tree")
    for line in manifest.decode().removesuffix("\n").split("\n"):
        mode, size, sha256, path = line.split(" ", 3)
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        yield int(size), sha256, place
        place.chmod(0o777 if mode == "755" else 0o666)  # only this pod sees the files


def _copied(stream: _Stream, folder: Path, tree: str, cache: Cache) -> bool:
    """Write the tree from the cache. Return False if the cache does not have all files."""
    return all(cache.copy(sha256, size, place) for size, sha256, place in _files(stream, folder, tree))


def _write(stream: _Stream, folder: Path, tree: str, cache: Cache | None) -> None:
    for size, sha256, place in _files(stream, folder, tree):
        left, digest = size, hashlib.sha256()
        with place.open("xb") as file:
            while left:
                piece = stream.read(left)
                left -= len(piece)
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != sha256:
            raise Broken(f"the content that it sent for {place.relative_to(folder)} does not match its hash")
        if cache:
            cache.keep(sha256, place)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
