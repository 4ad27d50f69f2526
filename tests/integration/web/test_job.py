"""The page of a job: its state, ranks, parameters, artifacts, metrics and logs, and the page's buttons."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from job_tracker.domain.job import JobState
from job_tracker.domain.telemetry import AttemptReport, MetricPoint
from tests.support.access import Entry, bearer
from tests.support.api_service import metadata
from tests.support.jobs import NOON, spec
from tests.support.web_site import Browser, Site, Visit
from training_service._generated import training_service_pb2 as pb

MARKUP = "<img src=x onerror=alert(1)>\"'&"
PAGES = ("", "/curves", "/logs", "/artifacts", "/series")


@pytest.fixture
async def running(visit: Visit) -> Site:
    """A dashboard whose jobs run."""
    return await visit(tracked=True)


async def ended(site: Site, *statuses: pb.TrainingStatus.ValueType, **parameters: str) -> int:
    job_id = await site.service.train(parameters)
    await site.service.seen(job_id, *(statuses or (pb.succeed,)))
    return job_id


async def test_a_job_shows_its_state_history_ranks_and_parameters(running: Site) -> None:
    job_id = await ended(running, EPOCHS="3", PARALLEL_INSTANCES="2")
    text = await running.browser().page(f"/jobs/{job_id}")
    assert '<span class="state succeeded">succeeded</span>' in text
    assert 'role="img" aria-label="queued' in text
    assert "1 master, 1 worker" in text
    assert text.count('data-label="Rank"') == 2
    row = re.search(r"<tr><th[^>]*>EPOCHS</th>.*?</tr>", text, re.S)
    assert row is not None
    assert "default" not in row[0]
    row = re.search(r"<tr><th[^>]*>LR</th>.*?</tr>", text, re.S)
    assert row is not None
    assert "default" in row[0]
    assert "trainctl submit program" in text
    assert "training.TrainingService/GetTrainingStatus" in text


async def test_a_failure_shows_its_diagnosis_and_what_to_do(running: Site) -> None:
    job_id = await ended(running, pb.failure, EXIT_CODE="7")
    text = await running.browser().page(f"/jobs/{job_id}")
    assert "Why it failed" in text
    job = await running.service.store.get(job_id)
    assert job.diagnosis is not None
    assert job.diagnosis.resolution.split(";")[0][:30] in text.replace("&#39;", "'")


@pytest.mark.parametrize("patience", [0.0, 60.0])
async def test_a_queued_job_says_why_it_waits_at_once_or_soon(
    site: Site, browser: Browser, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr("training_service.web.pages.job._EXPLAINED_SECONDS", patience)
    job_id = await site.service.train()
    text = await browser.page(f"/jobs/{job_id}")
    assert "Why it waits" in text
    assert ("<code>pending</code>" in text) is bool(patience)
    async with browser.events(f"/jobs/{job_id}/live") as events:
        assert "<code>pending</code>" in (await anext(events))[1]


@pytest.mark.parametrize("part", PAGES)
async def test_unknown_jobs_are_not_found(browser: Browser, part: str) -> None:
    for job_id in ("7", "0", "9" * 19, "9" * 1000):
        text = await browser.page(f"/jobs/{job_id}{part}", 404)
        assert "exist" in text
    await browser.page(f"/jobs/{'9' * 5000}{part}", 414)
    await browser.page(f"/jobs/x{part}", 404)
    await browser.page(f"/jobs/-1{part}", 404)


async def test_a_job_of_another_project_is_as_one_that_never_was(closed: Site) -> None:
    entry = Entry(closed.service)
    await entry.project("vision", alice="submitter", eve="viewer")
    await entry.project("speech", bob="admin")
    sent = [*bearer((await entry.token("bob")).text), ("x-project", "speech")]
    await closed.service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)
    browser = closed.browser()
    await browser.log_in((await entry.token("alice")).text)
    for path in (
        *(f"/jobs/1{part}" for part in PAGES),
        "/jobs/1/live",
        "/jobs/1/artifacts/x",
        "/jobs/1/fresh",
    ):
        own, never = await browser.get(path), await browser.get(path.replace("/1", "/2"))
        assert own.status_code == 404, path
        assert own.text.replace("Job 1", "Job 2") == never.text
    for action in ("cancel", "rerun"):
        assert (await browser.post(f"/jobs/1/{action}", {})).status_code == 404
    assert (await closed.service.store.get(1)).state is JobState.QUEUED


async def test_a_viewer_may_look_and_not_act(closed: Site) -> None:
    entry = Entry(closed.service)
    await entry.project("vision", alice="submitter", eve="viewer")
    sent = [*bearer((await entry.token("alice")).text), ("x-project", "vision")]
    await closed.service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)
    browser = closed.browser()
    await browser.log_in((await entry.token("eve")).text)
    await browser.page("/jobs/1")
    for action in ("cancel", "rerun"):
        answer = await browser.post(f"/jobs/1/{action}", {})
        assert answer.status_code == 403
        assert "submitter" in answer.text


async def test_a_job_is_cancelled_and_run_again(site: Site, browser: Browser) -> None:
    job_id = await site.service.train({"EPOCHS": "3"}, name="first")
    answer = await browser.post(f"/jobs/{job_id}/cancel", {})
    assert answer.headers["location"] == f"/jobs/{job_id}"
    assert (await site.service.store.get(job_id)).state is JobState.CANCELLED
    answer = await browser.post(f"/jobs/{job_id}/rerun", {})
    assert answer.headers["location"] == f"/jobs/{job_id + 1}"
    again = await site.service.store.get(job_id + 1)
    assert (again.spec.name, again.spec.parameters["EPOCHS"]) == ("first", "3")


async def test_text_of_users_is_never_markup(site: Site, browser: Browser) -> None:
    submitted = spec({"NOTE": MARKUP}, name=MARKUP, submitted_by=MARKUP, code_version=MARKUP)
    job = await site.service.store.submit(submitted, NOON, None, 9, tags=("<b>",))
    for part in ("", "/curves", "/logs", "/artifacts"):
        text = await browser.page(f"/jobs/{job.id}{part}")
        assert "<img" not in text
        assert "<b>" not in text


async def test_a_page_of_a_job_changes_without_a_reload(visit: Visit) -> None:
    site = await visit(tracked=True)
    browser = site.browser()
    job_id = await site.service.train({"RUN_SECONDS": "forever"})
    await site.service.seen(job_id, pb.running)
    async with browser.events(f"/jobs/{job_id}/live") as events:
        name, text = await anext(events)
        assert (name, "running" in text) == ("job", True)
        await site.service.stub.CancelTraining(pb.CancelTrainingRequest(job_id=job_id))
        names = [(name, text) async for name, text in events]
    assert names[-1][0] == "end"
    assert "cancelled" in names[-2][1]


async def test_metrics_are_series_with_gaps_for_values_that_are_not_finite(
    site: Site, browser: Browser
) -> None:
    job_id = await site.service.train()
    job = await site.service.store.get(job_id)
    store = site.service.store
    job = await store.update(job.admitted(NOON))
    at = datetime(2026, 11, 24, 12, tzinfo=UTC)
    values = (1.0, float("nan"), float("inf"), 0.5)
    points = tuple(MetricPoint("loss", step, at, value) for step, value in enumerate(values))
    await store.record_reports([AttemptReport(job_id=job_id, attempt=1, at=at, points=points)])
    [series] = json.loads(await browser.page(f"/jobs/{job_id}/series"))
    assert series["name"] == "loss"
    assert series["values"] == [1.0, None, None, 0.5]
    assert series["gaps"] == 2
    assert series["steps"] == [0, 1, 2, 3]
    assert json.loads(await browser.page(f"/jobs/{job_id}/series?name=other")) == []


async def test_an_artifact_is_a_file_to_keep_and_never_a_page(running: Site) -> None:
    job_id = await ended(running)
    job = await running.service.store.get(job_id)
    folder = Path(job.model_uri)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evil <b>.html").write_text("<script>alert(1)</script>")
    browser = running.browser()
    text = await browser.page(f"/jobs/{job_id}/artifacts")
    [link] = re.findall(r'href="(/jobs/\d+/artifacts/[^"]*evil[^"]*)"', text)
    answer = await browser.get(link)
    assert answer.text == "<script>alert(1)</script>"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    for name in ("none", "..%2f..%2fx", "%2fetc%2fpasswd", "a%00b"):
        assert (await browser.get(f"/jobs/{job_id}/artifacts/{name}")).status_code in (400, 404)


async def test_a_log_begins_with_its_last_lines_and_each_line_has_a_link(running: Site) -> None:
    job_id = await ended(running, PRINT="two <b>")
    browser = running.browser()
    text = await browser.page(f"/jobs/{job_id}/logs")
    assert "two &lt;b&gt;" in text
    link = re.findall(r'class="line".*?href="([^"]+)"', text)[-1].replace("&amp;", "&")
    assert "two &lt;b&gt;" in await browser.page(link)
    assert "No line contains" in await browser.page(f"/jobs/{job_id}/logs?find=nothing")
    assert "two &lt;b&gt;" in await browser.page(f"/jobs/{job_id}/logs?find=TWO&rank=all")
    answer = await browser.get(f"/jobs/{job_id}/logs/text")
    assert "two <b>" in answer.text
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize("query", ["rank=9", "rank=x", "attempt=9", "at=x", "lines=0"])
async def test_a_bad_part_of_a_log_is_named(running: Site, query: str) -> None:
    job_id = await ended(running)
    text = await running.browser().page(f"/jobs/{job_id}/logs?{query}", 400)
    assert query.partition("=")[0] in text


async def test_a_log_is_followed_and_goes_on_where_it_was(running: Site) -> None:
    browser = running.browser()
    job_id = await running.service.train({"RUN_SECONDS": "forever", "PRINT": "hello"})
    await running.service.seen(job_id, pb.running)
    async with browser.client.stream("GET", f"/jobs/{job_id}/logs/follow") as answer:
        position = await _position(answer)
    await running.service.stub.CancelTraining(pb.CancelTrainingRequest(job_id=job_id))
    await running.service.seen(job_id, pb.cancelled)
    answer = await browser.get(f"/jobs/{job_id}/logs/follow", **{"last-event-id": position})
    assert "hello" not in answer.text
    assert "event: end" in answer.text


async def _position(answer: httpx.Response) -> str:
    position = ""
    async for line in answer.aiter_lines():
        if line.startswith("id: "):
            position = line.removeprefix("id: ")
        if "hello" in line:
            return position
    raise AssertionError("the log ended")
