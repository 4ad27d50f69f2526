"""A file that is written sequentially, with the size and hash of its content."""

import hashlib
import io
from typing import IO, Any

from trainer_kit.checkpoints.manifest import Part


class HashedFile(io.RawIOBase):
    """Passes the written data on to another file, and hashes it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._size = 0

    def writable(self) -> bool:
        """Return true: the file can be written."""
        return True

    def write(self, data: Any) -> int:
        """Write all of `data`, and return the number of its bytes."""
        self._file.write(data)
        self._digest.update(data)
        length = memoryview(data).nbytes
        self._size += length
        return length

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._size

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is closed."""

    def part(self) -> Part:
        """Return the size and hash of the written data."""
        return Part(self._size, self._digest.hexdigest())
