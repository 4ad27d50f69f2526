"""Repeats calls to an engine that are expected to succeed in a moment."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from job_tracker.domain.errors import BackendUnavailable

Result = TypeVar("Result")


class NotYet(BackendUnavailable):
    """The call failed, but a repeated call may succeed in a moment."""


async def repeated(attempt: Callable[[], Awaitable[Result]], seconds: float, pause: float) -> Result:
    """Return the result of `attempt`, which is called again while it raises NotYet.

    Between the calls, there is a pause of `pause` seconds. Raises the last NotYet after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await attempt()
        except NotYet:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(pause)
