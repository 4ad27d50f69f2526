"""The dashboard in a real browser: it draws, follows changes, reacts to keys, is accessible, and loads
nothing from other sites.

All tests share two services, one for each store, and one browser, because starting them takes longer than a
view.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from tests.support.access import RedisOpener
from tests.support.api_service import serve
from tests.support.browsers import chromium, new_page
from tests.support.patience import PATIENCE
from tests.support.redis_server import server_or_skip
from tests.support.web_site import Site, Visit, visit
from training_service._generated import training_service_pb2 as pb

__all__ = ["serve", "visit"]

LOOKS = WIDE_AND_LIGHT, NARROW_AND_DARK = (1280, "light"), (360, "dark")
VIEWS = (
    *(
        "/jobs",
        "/jobs/1",
        "/jobs/1/curves",
        "/jobs/1/logs",
        "/jobs/1/artifacts",
        "/compare?job=1&job=2&job=3",
    ),
    *(
        "/sweep",
        "/queue?over=week",
        "/machines",
        "/submit?algorithm=program",
        "/login",
        "/nothing",
        "/jobs/3",
    ),
    *("/operator", "/operator/service", "/operator/tokens", "/operator/audit"),
)
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RULES = {
    WIDE_AND_LIGHT: {"runOnly": TAGS, "resultTypes": ["violations"]},
    # The rules that depend on colors and sizes: the page is the same otherwise.
    NARROW_AND_DARK: {
        "runOnly": {
            "type": "rule",
            "values": ["color-contrast", "target-size", "scrollable-region-focusable", "link-in-text-block"],
        },
        "resultTypes": ["violations"],
    },
}


class Watched:
    """A page, and the errors on it."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.problems: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("request", lambda request: self._asked(request.url, origin))

    def _heard(self, kind: str, text: str) -> None:
        # Chromium gives up requests when a network interface appears or disappears, as in tests with
        # clusters.
        expected = ("404 (Not Found)", "400 (Bad Request)", "net::ERR_NETWORK_CHANGED")
        if kind in ("error", "warning") and not any(each in text for each in expected):
            self.problems.append(f"{kind}: {text}")

    def _asked(self, url: str, origin: str) -> None:
        if not url.startswith(origin):
            self.problems.append(f"another origin: {url}")


@pytest.fixture
async def site(visit: Visit) -> Site:
    """A dashboard on SQLite with a job that runs, one that has ended, and one that has failed."""
    return await with_jobs(await visit(tracked=True))


@pytest.fixture
async def shared(visit: Visit, tmp_path: Path) -> AsyncIterator[Site]:
    """The same on Redis."""
    server = server_or_skip(tmp_path / "redis")
    server.start()
    try:
        yield await with_jobs(await visit(RedisOpener(server), tracked=True))
    finally:
        server.end()


async def with_jobs(site: Site) -> Site:
    running = await site.service.train({"RUN_SECONDS": "forever", "PRINT": "hello <b>"}, name="first")
    await site.service.seen(running, pb.running)
    ended = await site.service.train({"EPOCHS": "3"}, name="second")
    await site.service.seen(ended, pb.succeed)
    failed = await site.service.train({"EPOCHS": "4", "EXIT_CODE": "3"}, name="third")
    await site.service.seen(failed, pb.failure)
    return site


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@asynccontextmanager
async def opened(browser: Browser, site: Site) -> AsyncIterator[Page]:
    """A page on which nothing may go wrong."""
    page = await new_page(browser, site.dashboard.url)
    watched = Watched(page, site.dashboard.url)
    yield page
    # The page is closed with the browser: Chromium sometimes never answers a request to close a page alone.
    assert watched.problems == []


# Chromium takes 20 s of CPU; beside another run of all tests, up to 50 times as long.
@pytest.mark.timeout(1200)
async def test_the_dashboard_works_in_a_browser(site: Site, shared: Site, browser: Browser) -> None:
    async with opened(browser, site) as page:
        found = []
        for path in VIEWS:
            async with asyncio.timeout(PATIENCE):  # so the call that hangs is named
                await page.goto(path)
                found += [each for look in LOOKS for each in await violations(page, path, look)]
        assert not found, "\n".join(map(str, found))
        await page.goto("/jobs")
        for look in LOOKS:
            await take_on(page, look)
            await expect(page.locator("[name=algorithm]")).to_be_visible(visible=look is WIDE_AND_LIGHT)
    async with opened(browser, shared) as page:
        async with asyncio.timeout(PATIENCE):
            await submit_by_the_form(page)
        async with asyncio.timeout(PATIENCE):
            await follow_changes(page, shared)


async def violations(page: Page, path: str, look: tuple[int, str]) -> list[tuple[object, ...]]:
    """Return why a person with a screen reader or a small screen could not use a view."""
    await take_on(page, look)
    width = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1], f"{path} is wider than the screen"
    assert await page.locator("main").count() == 1
    assert await page.locator("h1").count() == 1, path
    if await page.locator("#curves").count():
        await page.wait_for_selector("#curves[aria-busy=false]")
    found = (await Axe().run(page, options=RULES[look])).response["violations"]
    return [(path, look, each["id"], *(node["html"][:150] for node in each["nodes"][:3])) for each in found]


async def take_on(page: Page, look: tuple[int, str]) -> None:
    """Give a page this width and scheme."""
    width, scheme = look
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await page.set_viewport_size({"width": width, "height": 800})


async def look_away(page: Page, *, hidden: bool) -> None:
    """Put the page into the background, or bring it back."""
    property_ = f"{{ value: {str(hidden).lower()}, configurable: true }}"
    await page.evaluate(
        f"Object.defineProperty(document, 'hidden', {property_});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )


async def follow_changes(page: Page, site: Site) -> None:
    """Pages change by themselves while they are visible, and selections stay."""
    await page.goto("/jobs")
    await page.locator("body").press("Tab")
    await expect(page.locator(".skip")).to_be_focused()
    await page.check("#job-2")
    await expect(page.locator("#selected")).to_have_text("1 job selected")
    another = await site.service.train({"RUN_SECONDS": "forever"}, name="another")
    await expect(page.locator(f"#name-{another}")).to_have_text("another")
    await expect(page.locator("#rows tr").first).to_have_id(f"row-{another}")
    await site.service.stub.CancelTraining(pb.CancelTrainingRequest(job_id=another))
    await expect(page.locator(f"#row-{another} .state.cancelled")).to_be_visible()
    async with page.expect_event("requestfailed", lambda request: "/jobs/live" in request.url):
        await look_away(page, hidden=True)
    unseen = await site.service.train(name="unseen")
    await look_away(page, hidden=False)
    await expect(page.locator(f"#name-{unseen}")).to_have_text("unseen")
    await expect(page.locator("#job-2")).to_be_checked()
    await page.get_by_role("button", name="Compare").click()
    await page.wait_for_url("**/compare?job=2")
    await page.goto("/jobs/1/logs")
    await expect(page.locator("#log")).to_contain_text("hello <b>")
    await page.goto("/jobs/1")
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.locator(".facts .state.cancelled")).to_be_visible()


async def submit_by_the_form(page: Page) -> None:
    """A form shows errors beside its fields, and makes a job."""
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
    await page.wait_for_url("**/jobs/4")
    # When the job ends, the page reloads itself, and no longer follows the job.
    await expect(page.locator(".facts .state.succeeded")).to_be_visible()
    await expect(page.locator("[sse-connect]")).to_have_count(0)
