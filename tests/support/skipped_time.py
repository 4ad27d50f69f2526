"""Time that passes only while an event loop has nothing to do, so that a slow machine changes no order."""

import asyncio
from typing import Any

import pytest


@pytest.fixture
async def skipped_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the event loop of the test skip the time until its next timer.

    For tests that wait for nothing outside their event loop.
    """
    loop: Any = asyncio.get_running_loop()
    now, select = loop.time(), loop._selector.select

    def skip(timeout: float | None) -> object:
        nonlocal now
        if timeout is None:
            return select(None)
        ready = select(0)
        if not ready:
            now += timeout
        return ready

    monkeypatch.setattr(loop, "time", lambda: now)
    monkeypatch.setattr(loop._selector, "select", skip)
