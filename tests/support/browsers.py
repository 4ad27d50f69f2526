"""Debian's Chromium without a window. scripts/install-chromium installs it."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.support.cluster import ON_CI
from tests.support.patience import PATIENCE

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


async def new_page(browser: Browser, url: str) -> Page:
    """Open a page for addresses below `url`. Its calls and expectations wait for PATIENCE."""
    milliseconds = 1000 * PATIENCE
    page = await browser.new_page(base_url=url)
    page.set_default_timeout(milliseconds)
    expect.set_options(timeout=milliseconds)
    return page
