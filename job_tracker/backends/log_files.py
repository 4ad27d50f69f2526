"""Reading a log file that may still be growing, in pieces of whole lines and bounded memory."""

import asyncio
import codecs
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

_PIECE = 64 * 1024
_SHORTEST_POLL, _LONGEST_POLL = 0.1, 1.0  # seconds; the quieter a log, the rarer it is looked at


async def read(path: Path, *, tail_lines: int | None, is_growing: Callable[[], bool]) -> AsyncIterator[str]:
    """The text of the file; goes on until `is_growing` says no and everything has been read.

    A line longer than a piece is cut. Bytes that are no UTF-8 become replacement characters.
    """
    # A character may be cut as well: its first half waits in the decoder for the other.
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    with path.open("rb") as file:
        if tail_lines is not None:
            # Logs have gigabytes: nobody else's calls are to wait for this.
            file.seek(await asyncio.to_thread(_start_of_tail, path, tail_lines))
        rest, poll = b"", _SHORTEST_POLL
        while True:
            growing = is_growing()  # asked before reading: what was written before the end is read
            data = file.read(_PIECE - len(rest))
            if data:
                rest, poll = rest + data, _SHORTEST_POLL
                end = rest.rfind(b"\n") + 1 or (len(rest) if len(rest) >= _PIECE else 0)
                if end:
                    yield decode(rest[:end])
                    rest = rest[end:]
            elif growing:
                await asyncio.sleep(poll)
                poll = min(poll * 1.5, _LONGEST_POLL)
            else:
                break
        if last := decode(rest, final=True):
            yield last


def tail(path: Path, lines: int, most_bytes: int = 4096) -> str:
    """The last lines of a file, or what of them fits; "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most_bytes))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _start_of_tail(path: Path, lines: int) -> int:
    with path.open("rb") as file:
        end = position = file.seek(0, os.SEEK_END)
        if lines == 0:
            return end
        missing = lines + 1  # line breaks, of which the last one ends the last line
        while position > 0:
            size = min(_PIECE, position)
            position -= size
            file.seek(position)
            block = file.read(size)
            if position + size == end and not block.endswith(b"\n"):
                missing -= 1
            breaks = block.count(b"\n")
            if breaks < missing:
                missing -= breaks
                continue
            found = size
            for _ in range(missing):
                found = block.rfind(b"\n", 0, found)
            return position + found + 1
        return 0
