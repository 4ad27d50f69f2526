"""Inspects unresponsive ranks from outside, to find the positions of their processes in the program."""

import asyncio
import base64
import json
import zlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from job_tracker.backends.base import RankAccess
from job_tracker.backends.shared import inspector
from job_tracker.common.printable import printable, without_secrets
from job_tracker.common.tasks import within
from job_tracker.domain.errors import TrackerError
from job_tracker.domain.group import GroupRef
from job_tracker.reports.ranks import MOST_OF_STACKS, Outside

_SECONDS = 10.0
"""The seconds after which inspections that are not done are cancelled. An inspector runs for at most 8 s."""
_AT_ONCE = 16
_MOST_BYTES = 1 << 20
_LONGEST_WORDS = 300
_STOPPED = ("T", "t")


Inspect = Callable[[GroupRef, Collection[int]], Awaitable[Mapping[int, Sequence[Outside]]]]
"""Returns, for each rank, the findings about its training processes. The function raises no errors."""


def inspect_by(access: RankAccess) -> Inspect:
    """Return a function that inspects several ranks at once. Each inspector runs where its rank runs."""

    async def inspect(group: GroupRef, ranks: Collection[int]) -> Mapping[int, Sequence[Outside]]:
        turns = asyncio.Semaphore(_AT_ONCE)
        found: dict[int, Sequence[Outside]] = dict.fromkeys(ranks, (_NO_TIME,))

        async def look_at(rank: int) -> None:
            async with turns:
                found[rank] = await _look_at(access, group, rank)

        await within(_SECONDS, [asyncio.create_task(look_at(rank)) for rank in sorted(ranks)])
        return found

    return inspect


_NO_TIME = Outside("could not be looked at in time")


async def _look_at(access: RankAccess, group: GroupRef, rank: int) -> tuple[Outside, ...]:
    try:
        return found_in(await access.execute(group, rank, command(), _MOST_BYTES))
    except TrackerError as error:
        return (Outside(f"could not be looked at: {_words(str(error))}"),)
    except Exception as error:  # a fault of one rank must not hide the results of others
        return (Outside(f"could not be looked at: {_words(repr(error))}"),)


@cache
def command() -> tuple[str, ...]:
    """Return the command that prints where in the program each process of a rank is."""
    packed = base64.b85encode(zlib.compress(Path(inspector.__file__).read_bytes(), 9)).decode()
    unpack = f"import base64,zlib;exec(zlib.decompress(base64.b85decode({packed!r})))"
    return ("python3", "-I", "-S", "-c", unpack)


def found_in(output: bytes) -> tuple[Outside, ...]:
    """Return the findings in the inspector's output, which is not trusted: the rank may have changed it."""
    try:
        processes = json.loads(output)["processes"]
        found = tuple(_outside(each) for each in processes[: inspector.MOST_PROCESSES])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return (Outside("could not be looked at: no answer from python3 where it runs"),)
    return found or (Outside("could not be looked at: it has no process"),)


def processes_of(rank: int, found: Sequence[Outside], each: int, size: int) -> dict[int, Outside]:
    """Return the findings about a rank, by the number of the training process.

    The group has `size` training processes, and each rank has `each` of them, except perhaps the last rank.
    If there is only one finding, such as an error, it applies to all processes of the rank.
    """
    numbers = range(rank * each, min((rank + 1) * each, size))
    seen = list(found) if len(found) > 1 else list(found) * len(numbers)
    return dict(zip(numbers, seen, strict=False))


def _outside(sent: Mapping[str, Any]) -> Outside:
    standing = f"process {int(sent['pid'])} ({sent['name']}) {sent['standing']}"
    standing += f", in the kernel at {sent['kernel']}" if sent["kernel"] else ""
    standing += f", traced by process {int(sent['traced_by'])}" if sent["traced_by"] else ""
    standing += f"; no stacks: {sent['problem']}" if sent["problem"] and not sent["stacks"] else ""
    stacks = without_secrets(str(sent["stacks"])[:MOST_OF_STACKS])
    return Outside(
        _words(standing),
        "".join(c for c in stacks if c.isprintable() or c == "\n"),
        sent["state"] in _STOPPED,
    )


def _words(text: str) -> str:
    return printable(without_secrets(text[:_LONGEST_WORDS]))[:_LONGEST_WORDS]
