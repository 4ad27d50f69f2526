"""The dashboard in a real browser: it draws, follows and obeys keys, and asks no other site for anything."""

import os
import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, async_playwright, expect

from tests.support.api_service import serve
from tests.support.web_site import Site, Visit, visit
from training_service._generated import training_service_pb2 as pb

__all__ = ["serve", "visit"]

SIZES = {"wide": (1280, "light"), "narrow": (360, "dark")}
VIEWS = (
    *("/jobs", "/jobs/1", "/jobs/1/curves", "/jobs/1/logs", "/jobs/1/artifacts", "/compare?job=1&job=2"),
    *("/queue", "/machines", "/submit?algorithm=program", "/login", "/nothing"),
    *("/operator", "/operator/tokens", "/operator/audit"),
)
UNNAMED = """() => [...document.querySelectorAll('input:not([type=hidden]), select, button, a, [role=img]')]
    .filter(e => !(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim() || e.value))
    .map(e => e.outerHTML)"""
"""Finds what a screen reader could not name."""


class Watched:
    """A page, and what went wrong on it."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.problems: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("request", lambda request: self._asked(request.url, origin))

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and "404 (Not Found)" not in text:
            self.problems.append(f"{kind}: {text}")

    def _asked(self, url: str, origin: str) -> None:
        if not url.startswith(origin):
            self.problems.append(f"another origin: {url}")


@pytest.fixture
async def site(visit: Visit) -> Site:
    """A dashboard with a job that runs, and one that has ended."""
    site = await visit(tracked=True)
    running = await site.service.train({"RUN_SECONDS": "forever", "PRINT": "hello <b>"}, name="first")
    await site.service.seen(running, pb.running)
    ended = await site.service.train({"EPOCHS": "3"}, name="second")
    await site.service.seen(ended, pb.succeed)
    return site


@pytest.fixture(params=SIZES)
async def watched(site: Site, request: pytest.FixtureRequest) -> AsyncIterator[Watched]:
    """A page of the browser."""
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is not installed")
        pytest.skip("chromium is not installed")
    width, scheme = SIZES[request.param]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        page = await browser.new_page(
            base_url=site.dashboard.url,
            viewport={"width": width, "height": 800},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        page.set_default_timeout(60_000)
        yield Watched(page, site.dashboard.url)
        await browser.close()


async def test_each_view_is_whole_in_a_browser(site: Site, watched: Watched) -> None:
    page = watched.page
    for path in VIEWS:
        await page.goto(path)
        width = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], f"{path} is wider than the screen"
        assert await page.evaluate(UNNAMED) == [], path
        assert await page.locator("main").count() == 1
        assert await page.locator("h1").count() == 1, path
    assert watched.problems == []


async def test_pages_change_by_themselves_and_selections_stay(site: Site, watched: Watched) -> None:
    page = watched.page
    await page.goto("/jobs")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.className") == "skip"
    await page.check("#job-2")
    await expect(page.locator("#selected")).to_have_text("1 job selected")
    third = await site.service.train(name="third")
    await expect(page.locator(f"#name-{third}")).to_have_text("third")
    await expect(page.locator("#job-2")).to_be_checked()
    await page.goto("/jobs/1/logs")
    await expect(page.locator("#log")).to_contain_text("hello <b>")
    await page.goto("/jobs/1")
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.locator(".facts .state.cancelled")).to_be_visible()
    assert watched.problems == []


async def test_a_job_is_submitted_by_the_form(site: Site, watched: Watched) -> None:
    page = watched.page
    await page.goto("/submit")
    await page.select_option("select[name=algorithm]", "strict")
    await page.fill("[name=dataset_id]", "1")
    await page.fill("[name=dataset_version]", "v1")
    await page.fill("[name='parameters.EPOCHS']", "x")
    await expect(page.locator("#line-trainctl")).to_contain_text("EPOCHS=x")
    await page.get_by_role("button", name="Submit", exact=True).click()
    await expect(page.locator("[id='problem-parameters.EPOCHS']")).to_contain_text("is not a whole number")
    await page.fill("[name='parameters.EPOCHS']", "2")
    await page.get_by_role("button", name="Submit", exact=True).click()
    await page.wait_for_url("**/jobs/3")
    problems = [each for each in watched.problems if "400 (Bad Request)" not in each]
    assert problems == []
