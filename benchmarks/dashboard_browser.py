"""Measures the dashboard as a person sees it: times in Debian's Chromium, without a window."""

import json
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, Route, sync_playwright

from benchmarks.dashboard_store import COMPARED, Filled
from benchmarks.support import Row, request
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

_POINTS = 10_000
_FIRST_BYTES, _FIRST_SECONDS, _EVENT_SECONDS, _DRAWN_MS, _LOG_SECONDS = 150_000, 1.0, 1.0, 200.0, 1.0
_SEEN = """([selector, text]) => new Promise((resolve) => {
    const look = () => {
        if (!document.querySelector(selector)?.textContent.includes(text)) return false;
        requestAnimationFrame(() => resolve(Date.now()));
        return true;
    };
    if (!look()) new MutationObserver((_, observer) => look() && observer.disconnect())
        .observe(document.body, { childList: true, subtree: true, characterData: true });
})"""
"""JavaScript that waits until an element contains a text, and returns the time of the next frame."""
_DRAWN = "() => performance.getEntriesByName('curves').at(-1)?.duration ?? 0"


@contextmanager
def chromium() -> Iterator[Browser | None]:
    """Run Chromium during the block. Yields None if it is not installed."""
    path = shutil.which("chromium")
    if path is None:
        yield None
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


def first_page(browser: Browser, url: str, rounds: int) -> list[Row]:
    """Load the list of jobs in a browser with an empty cache, and return rows with the bytes and the time."""
    sizes, times = [], []
    for _ in range(rounds):
        with browser.new_context(base_url=url) as context:
            page = context.new_page()
            received: list[float] = []
            session = context.new_cdp_session(page)
            session.send("Network.enable")
            session.on(
                "Network.loadingFinished",
                lambda event, received=received: received.append(event["encodedDataLength"]),
            )
            page.goto("/jobs", wait_until="load")
            # When DOMContentLoaded ends, the page's scripts have run, so the page can be used.
            script = "() => performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd / 1000"
            times.append(float(page.evaluate(script)))
            if page.locator("#rows tr").count() < 2:
                raise RuntimeError("the first page has no jobs")
            sizes.append(sum(received))
    size, seconds = statistics.median(sizes), statistics.median(times)
    return [
        Row(
            "dashboard: first page, transferred",
            f"{size / 1e3:.0f} kB",
            target="≤ 150 kB",
            met=size <= _FIRST_BYTES,
        ),
        Row(
            "dashboard: first page, until it can be used",
            f"{seconds:.2f} s",
            target="≤ 1 s",
            met=seconds <= _FIRST_SECONDS,
        ),
    ]


def events(browser: Browser, url: str, stub: TrainingServiceStub, number: int) -> Row:
    """Submit and cancel jobs. Wait until the browser shows each change, and return a row with the waits."""
    waits = []
    with browser.new_context(base_url=url) as context:
        page = context.new_page()
        page.goto("/jobs")
        for turn in range(number):
            # These pauses spread the changes over the time between two updates of the page.
            time.sleep(0.15 * (turn % 7))
            job_id = stub.Train(request()).job_id
            waits.append(_seen(page, f"#name-{job_id}", "test1", time.time()))
            called = time.time()
            stub.CancelTraining(pb.CancelTrainingRequest(job_id=job_id))
            waits.append(_seen(page, f"tr:has(#name-{job_id}) .state", "cancelled", called))
    longest = max(waits)
    return Row(
        f"dashboard: an event on the screen, median and longest of {len(waits)}, with 50 viewers",
        f"{statistics.median(waits):.2f} s, {longest:.2f} s",
        target="≤ 1 s",
        met=longest <= _EVENT_SECONDS,
    )


def _seen(page: Page, selector: str, text: str, since: float) -> float:
    return max(0.0, float(page.evaluate(_SEEN, [selector, text])) / 1000 - since)


def curves(browser: Browser, url: str, filled: Filled, rounds: int) -> Row:
    """Draw a metric of 20 jobs with 10,000 points each, and return a row with the time.

    The service keeps fewer points, so the benchmark itself answers the page's requests for points.
    """
    jobs = range(filled.large - COMPARED, filled.large)
    with browser.new_context(base_url=url) as context:
        page = context.new_page()
        page.route("**/series**", _many_points)
        page.goto("/compare?" + "&".join(f"job={job_id}" for job_id in jobs))
        page.wait_for_function("() => document.querySelector('#curves canvas')")
        times = []
        for turn in range(rounds):
            page.wait_for_function(_DRAWN)
            page.evaluate("performance.clearMeasures()")
            page.select_option("[name=over]", ("time", "step")[turn % 2])
            page.wait_for_function(_DRAWN)
            times.append(float(page.evaluate(_DRAWN)))
    median = statistics.median(times)
    return Row(
        f"dashboard: {COMPARED} series of {_POINTS:,} points drawn",
        f"{median:.0f} ms",
        target="≤ 200 ms",
        met=median <= _DRAWN_MS,
    )


def _many_points(route: Route) -> None:
    number = int(route.request.url.partition("/jobs/")[2].partition("/")[0])
    steps = list(range(_POINTS))
    series = {
        "name": "loss",
        "steps": steps,
        "times": [1.7e9 + step for step in steps],
        "values": [1000 / (step + 100) + (step * number) % 17 / 100 for step in steps],
        "gaps": 0,
    }
    route.fulfill(body=json.dumps([series]), content_type="application/json")


def log_end(browser: Browser, url: str, job_id: int, last: str, size: int, rounds: int) -> Row:
    """Open a long log at its end, and return a row with the time."""
    times = []
    for _ in range(rounds):
        with browser.new_context(base_url=url) as context:
            page = context.new_page()
            began = time.monotonic()
            page.goto(f"/jobs/{job_id}/logs", wait_until="commit")
            page.wait_for_function(f"() => document.querySelector('#log')?.textContent.includes({last!r})")
            times.append(time.monotonic() - began)
    median = statistics.median(times)
    return Row(
        f"dashboard: a log of {size / 1e9:g} GB opened at its end",
        f"{median:.2f} s",
        target="≤ 1 s",
        met=median <= _LOG_SECONDS,
    )


def absent(names: Sequence[str]) -> list[Row]:
    """Return rows for the measurements that cannot be made without Chromium."""
    return [Row(f"dashboard: {name}", "not measured: chromium is not installed") for name in names]
