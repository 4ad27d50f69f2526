"""Gathers the results of concurrent calls to an engine."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from job_tracker.domain.errors import LaunchFailed

Result = TypeVar("Result")


async def gathered(work: Iterable[Awaitable[Result]]) -> list[Result]:
    """Wait for all results. If calls fail, raise one of the errors, preferably a permanent LaunchFailed."""
    results = await asyncio.gather(*work, return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    failures.sort(key=lambda failure: not isinstance(failure, LaunchFailed))
    if failures:
        raise failures[0]
    return [result for result in results if not isinstance(result, BaseException)]
