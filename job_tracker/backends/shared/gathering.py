"""Gathers the results of concurrent calls to an engine, and the output of a command."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterable
from contextlib import aclosing
from typing import TypeVar

from job_tracker.domain.errors import LaunchFailed

Result = TypeVar("Result")


async def gathered(work: Iterable[Awaitable[Result]]) -> list[Result]:
    """Wait for all results. If calls fail, raise one of the errors.

    A LaunchFailed is preferred to other errors: it is permanent, so the launch must not be repeated.
    """
    results = await asyncio.gather(*work, return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    failures.sort(key=lambda failure: not isinstance(failure, LaunchFailed))
    if failures:
        raise failures[0]
    return [result for result in results if not isinstance(result, BaseException)]


async def beginning_of(output: AsyncGenerator[bytes, None], most_bytes: int) -> bytes:
    """Return at most the first `most_bytes` of an output, and close the output without reading further."""
    first = b""
    async with aclosing(output) as pieces:
        async for piece in pieces:
            first += piece
            if len(first) >= most_bytes:
                break
    return first[:most_bytes]
