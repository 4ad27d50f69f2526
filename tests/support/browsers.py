"""Debian's Chromium without a window. scripts/install-chromium installs it."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from playwright.async_api import Browser, async_playwright

from tests.support.cluster import ON_CI

_ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start Chromium. Without it, the test is skipped, or fails on CI."""
    path = shutil.which("chromium")
    if path is None:
        (pytest.fail if ON_CI else pytest.skip)("Chromium is not installed; see scripts/install-chromium")
    async with (
        async_playwright() as playwright,
        await playwright.chromium.launch(executable_path=path, args=_ARGUMENTS) as browser,
    ):
        yield browser
