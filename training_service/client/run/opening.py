"""Opens paths in a user's folder, some of which may not be regular files."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path


@contextmanager
def open_content(place: Path) -> Iterator[BufferedReader]:
    """Open a file to read it. Raises OSError, for example for a pipe or a device, which would block."""
    with open(place, "rb", opener=_without_waiting) as content:
        if not stat.S_ISREG(os.fstat(content.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        yield content


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
