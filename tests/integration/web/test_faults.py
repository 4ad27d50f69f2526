"""Hostile names, large jobs, and parts that fail: each is a page that says so, and nothing leaks."""

import asyncio
import inspect
import math
import re
import time
from collections.abc import AsyncGenerator
from datetime import timedelta
from functools import partial
from types import SimpleNamespace

import pytest

from job_tracker.access import tokens
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import Ending, JobState
from job_tracker.domain.progress import Progress
from job_tracker.domain.telemetry import AttemptReport, MetricPoint
from job_tracker.jobs import JobView
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE
from tests.support.web_site import STREAMS, Browser, Site, hostile_job, views
from training_service.web import live
from training_service.web.routes import PAGES
from training_service.web.sessions import Sessions


async def test_text_of_users_is_never_markup_on_any_page(site: Site, browser: Browser) -> None:
    job_id = await hostile_job(site)
    waiting = await site.service.store.submit(spec(name="<img>", submitted_by="<img>"), NOON, None, 9)
    shown = 0
    for path in [*views(job_id), f"/jobs/{waiting.id}", f"/submit?from={job_id}", "/submit?project=<img>"]:
        if path.endswith(STREAMS):
            continue
        answer = await browser.get(path)
        if answer.headers.get("content-type", "").startswith("text/html"):
            assert "<img" not in answer.text, path
            assert "<b>" not in answer.text, path
            assert '</script>"' not in answer.text, path
            shown += "&lt;img src=x onerror=alert(1)&gt;" in answer.text
    assert shown > 4
    assert "Where slow ranks stood" in await browser.page(f"/jobs/{job_id}")


async def test_values_that_are_not_finite_have_names(site: Site, browser: Browser) -> None:
    store = site.service.store
    job = await store.update((await store.submit(spec(), NOON, None, 9)).admitted(NOON))
    metrics = {"loss": math.nan, "high": math.inf, "low": -math.inf}
    report = AttemptReport(job_id=job.id, attempt=1, at=NOON, progress=Progress(step=3, metrics=metrics))
    assert await store.record_reports([report]) == [True]
    for path in ("/jobs/1", "/compare?job=1"):
        text = await browser.page(path)
        assert set(re.findall(">(NaN|−∞|∞)<", text)) == {"∞", "NaN", "−∞"}, path


async def test_a_job_with_many_ranks_has_pages_of_bounded_size(site: Site, browser: Browser) -> None:
    store = site.service.store
    job = await store.submit(spec(instances=10_000), NOON, None, 9)
    job = await store.update(job.admitted(NOON))
    ranks = [RankStatus(rank, Phase.RUNNING) for rank in range(10_000)]
    ranks[7777] = RankStatus(7777, Phase.FAILED, 1, note="out of memory")
    await store.update(job.observed(tuple(ranks)).running(NOON))
    for path in views(job.id):
        if not path.endswith(STREAMS):
            answer = await browser.get(path)
            assert answer.status_code in (200, 303, 404), path
            assert len(answer.content) < 400_000, path
    text = await browser.page(f"/jobs/{job.id}")
    assert text.index("7777") < text.index("Log of rank 0")
    assert "9\u202f999 running" in text
    answer = await browser.get(f"/jobs/{job.id}/logs?rank=all")
    assert answer.status_code in (200, 429)
    assert "Traceback" not in answer.text


async def test_a_store_that_is_away_is_a_page_for_each_address(
    site: Site, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.service.train()
    forms = [page.path.replace("{job_id:int}", "1") for page in PAGES if page.is_form]
    forms.remove("/logout")
    proof = await browser.proof()

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the store does not answer")

    store = type(site.service.store)
    for name, method in inspect.getmembers(store):
        if not name.startswith("_") and inspect.iscoroutinefunction(method) and name != "close":
            monkeypatch.setattr(store, name, away)
    monkeypatch.setattr(site.service.jobs.mirror, "ask", away)
    said = 0
    for path in views():
        if path == "/jobs/live":  # continues when the store does
            continue
        answer = await browser.get(path)
        assert answer.status_code in (200, 303, 503), path
        assert "Traceback" not in answer.text
        said += answer.status_code == 503 and "The job store does not answer" in answer.text
    for path in forms:
        answer = await browser.post(path, {"proof": proof, "job": "1", "id": "x", "token": "x"})
        assert answer.status_code in (200, 303, 400, 401, 503), path
        assert "Traceback" not in answer.text
    assert said > 15


async def test_an_error_of_the_service_says_only_where_its_reason_is(
    site: Site, browser: Browser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(type(site.service.store), "list_jobs", broken)
    answer = await browser.get("/jobs")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.headers["x-request-id"] in answer.text
    assert "secret" in caplog.text
    async with browser.events("/jobs/live") as events:
        assert [name async for name, _ in events] == []
    assert "a stream of a page failed" in caplog.text


async def test_the_stream_of_the_curves_ends_without_a_traceback_when_the_store_is_away(
    site: Site, browser: Browser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(caller: Caller, job_id: int) -> AsyncGenerator[JobView, None]:
        yield await site.service.jobs.get(caller, job_id)
        raise StoreUnavailable("the store does not answer")

    job = await site.service.train()
    monkeypatch.setattr(site.service.jobs, "watch", broken)
    async with browser.events(f"/jobs/{job}/fresh") as events:
        assert [name async for name, _ in events] == []
    assert "a stream of a page failed" not in caplog.text


async def test_a_stream_ends_with_its_session_and_then_asks_for_a_login(
    closed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = closed.browser()
    name = f"training-{await closed.service.store.store_id()}"
    keys = partial(getattr, closed.service.keys, "current")

    def cookie_of_hour(began: float) -> str:
        sessions = Sessions(keys, timedelta(hours=1), partial(float, began))
        return f"{name}={sessions.cookie_of(sessions.begin(tokens.OPERATOR_ID, 'default'))}"

    now = time.time()
    # The clock of streams stands still shortly before the end of the session, so that the stream opens
    # however long that takes.
    monkeypatch.setattr(live, "time", SimpleNamespace(time=partial(float, now + 3600 - 0.5)))
    opened = time.monotonic()
    async with (
        asyncio.timeout(PATIENCE),
        browser.client.stream("GET", "/jobs/live", headers={"cookie": cookie_of_hour(now)}) as answer,
    ):
        assert answer.status_code == 200
        async for _ in answer.aiter_lines():
            pass
    assert time.monotonic() >= opened + 0.5
    ended = cookie_of_hour(now - 3600)
    answer = await browser.get("/jobs/live", cookie=ended, accept="text/event-stream")
    assert answer.status_code == 401
    assert "log in" in answer.text


async def test_a_page_that_connects_again_gets_nothing_that_it_shows_already(
    site: Site, browser: Browser
) -> None:
    await site.service.train()
    async with browser.client.stream("GET", "/jobs/live") as answer:
        lines = answer.aiter_lines()
        shown = next_id = ""
        while not shown:
            line = await anext(lines)
            next_id = line.removeprefix("id: ") if line.startswith("id: ") else next_id
            shown = next_id if line.startswith("event: rows") else ""
    async with browser.client.stream("GET", "/jobs/live", headers={"last-event-id": shown}) as answer:
        lines = answer.aiter_lines()
        assert (await anext(lines)).startswith("retry")
        await site.service.train()
        text = ""
        while "event:" not in text or not text.endswith("\n\n"):
            text += f"{await anext(lines)}\n"
        assert "row-2" in text


async def test_a_job_that_is_deleted_meanwhile_ends_its_page(site: Site, browser: Browser) -> None:
    store = site.service.store
    job = await store.update((await store.submit(spec(), NOON, None, 9)).admitted(NOON))
    async with browser.events(f"/jobs/{job.id}/live") as events:
        assert (await anext(events))[0] == "job"
        job = await store.get(job.id)
        await store.update(job.ended(Ending(JobState.CANCELLED, NOON), NOON))
        await store.delete([job.id])
        names = [name async for name, _ in events]
        assert names[-1] in ("problem", "end")
    await browser.page(f"/jobs/{job.id}", 404)


async def test_as_many_series_as_a_job_may_have_come_in_parts(site: Site, browser: Browser) -> None:
    store = site.service.store
    job = await store.update((await store.submit(spec(), NOON, None, 9)).admitted(NOON))
    names = [f"Metric {number:03} " + "x" * 200 for number in range(256)]
    points = tuple(MetricPoint(name, 1, NOON, 1.0) for name in names)
    assert await store.record_reports([AttemptReport(job_id=job.id, attempt=1, at=NOON, points=points)]) == [
        True
    ]
    found: list[str] = []
    address = "/jobs/1/series"
    while part := (await browser.client.get(address, params={"after": found[-1] if found else ""})).json():
        assert len(part) <= 8
        found += [series["name"] for series in part]
    assert found == names
    [one] = (await browser.client.get(address, params={"find": "metric 017"})).json()
    assert one["name"] == names[17]
    assert (await browser.page("/series.csv?job=1")).count("\n") == 257
