"""The list of jobs: filters, pages, several at once, and changes without a reload."""

import asyncio
import re

import grpc
import pytest

from job_tracker.domain.errors import StoreUnavailable
from tests.support.access import Entry, bearer
from tests.support.api_service import Service, metadata
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE
from tests.support.web_site import Browser, Site, Visit
from training_service._generated import training_service_pb2 as pb

MARKUP = "<img src=x onerror=alert(1)>\"'&"


def ids(text: str) -> list[int]:
    return [int(found) for found in re.findall(r'name="job" value="(\d+)"', text)]


async def submitted(service: Service, number: int) -> None:
    for _ in range(number):
        await service.train(name="n", algorithm="program")


async def test_a_list_has_the_newest_jobs_first_in_pages(site: Site, browser: Browser) -> None:
    await submitted(site.service, 5)
    text = await browser.page("/jobs?size=2")
    assert ids(text) == [5, 4]
    [link] = re.findall(r'href="(/jobs\?[^"]*before=4[^"]*)"', text)
    assert ids(await browser.page(link.replace("&amp;", "&"))) == [3, 2]
    assert ids(await browser.page("/jobs?size=2&before=2")) == [1]


async def test_filters_are_those_of_the_api(site: Site, browser: Browser) -> None:
    service = site.service
    await service.train(name="alpha")
    await service.train(name="beta", algorithm="strict")
    request = pb.TrainRequest(metadata=metadata(name="gamma"), tags=["blue"])
    await service.stub.Train(request)
    await service.stub.CancelTraining(pb.CancelTrainingRequest(job_id=1))
    for query, expected in {
        "name=be": [2],
        "algorithm=strict": [2],
        "tag=blue": [3],
        "state=cancelled": [1],
        "state=queued&state=cancelled": [3, 2, 1],
        "by=operator": [3, 2, 1],
        "by=me": [3, 2, 1],
        "by=ada": [],
        "project=default": [3, 2, 1],
        "until=2020-01-01": [],
        "since=2020-01-01": [3, 2, 1],
    }.items():
        assert ids(await browser.page(f"/jobs?{query}")) == expected, query


@pytest.mark.parametrize(
    "query", ["state=no", "before=x", "tag=%3Cb%3E", "since=x", "project=%3Cb%3E", "size=0"]
)
async def test_a_bad_filter_is_a_page_that_names_the_field(browser: Browser, query: str) -> None:
    text = await browser.page(f"/jobs?{query}", 400)
    assert query.partition("=")[0] in text
    assert "<b>" not in text


async def test_names_full_of_markup_are_shown_as_they_are(site: Site, browser: Browser) -> None:
    await site.service.store.submit(spec(name=MARKUP, submitted_by=MARKUP), NOON, None, 9)
    text = await browser.page("/jobs")
    assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "<img" not in await browser.page("/jobs?by=%3Cimg%3E&name=%22%3E%3Cimg%3E")


async def test_a_list_has_only_jobs_of_the_callers_projects(closed: Site) -> None:
    entry = Entry(closed.service)
    await entry.project("vision", alice="submitter")
    await entry.project("speech", bob="submitter")
    for name, project in (("alice", "vision"), ("bob", "speech")):
        sent = [*bearer((await entry.token(name)).text), ("x-project", project)]
        await closed.service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)
    browser = closed.browser()
    await browser.log_in((await entry.token("alice")).text)
    assert ids(await browser.page("/jobs")) == [1]
    await browser.page("/jobs?project=speech", 403)
    answer = await browser.post("/jobs/cancel", {"job": ["1", "2"], "next": "/jobs"})
    assert answer.status_code == 409
    assert "Job 2</a>: Job 2 doesn&#39;t exist" in answer.text
    assert (await closed.service.store.get(1)).state == "cancelled"
    assert (await closed.service.store.get(2)).state == "queued"


async def test_several_jobs_are_cancelled_at_once(site: Site, browser: Browser) -> None:
    await submitted(site.service, 3)
    answer = await browser.post("/jobs/cancel", {"job": ["1", "3"], "next": "/jobs?size=9"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/jobs?size=9"
    assert ids(await browser.page("/jobs?state=cancelled")) == [3, 1]


@pytest.mark.parametrize("chosen", [[], ["x"], ["-1"], ["9" * 30], ["1"] * 101])
async def test_a_bad_selection_is_refused(browser: Browser, chosen: list[str]) -> None:
    await browser.page("/jobs")
    assert (await browser.post("/jobs/cancel", {"job": chosen})).status_code == 400


async def test_a_list_changes_without_a_reload(site: Site, browser: Browser) -> None:
    async with browser.events("/jobs/live") as events:
        name, text = await anext(events)
        assert (name, ids(text)) == ("problem", [])
        assert ids((await anext(events))[1]) == []
        job_id = await site.service.train()
        name, text = await anext(events)
        assert (name, ids(text)) == ("rows", [job_id])
        await site.service.stub.CancelTraining(pb.CancelTrainingRequest(job_id=job_id))
        name, text = await anext(events)
        assert name in ("changes", "rows")  # with a single row, the whole list is as short
        assert "cancelled" in text


async def test_a_list_that_is_shown_already_is_not_sent_again(site: Site, browser: Browser) -> None:
    await submitted(site.service, 5)
    [live] = re.findall(r'sse-connect="([^"]+)"', await browser.page("/jobs"))
    async with browser.events(live.replace("&amp;", "&")) as events:
        await site.service.train()
        # It is the only row, unless the job was submitted before the first event.
        assert ids((await anext(events))[1])[0] == 6
        await site.service.stub.CancelTraining(pb.CancelTrainingRequest(job_id=6))
        name, text = await anext(events)
        assert (name, ids(text)) == ("changes", [6])


async def test_a_stream_ends_when_its_token_does(closed: Site) -> None:
    entry, browser = Entry(closed.service), closed.browser()
    await entry.project("vision", alice="submitter")
    made = await entry.token("alice")
    await browser.log_in(made.text)
    async with browser.events("/jobs/live") as events:
        await anext(events)
        await anext(events)
        revoke = closed.service.access.operations.revoke_token
        operator = (await closed.service.access.authenticator.authenticate(entry.operator, "", None))[0]  # type: ignore[arg-type]
        await revoke(operator, made.token.id)
        sent = [*bearer(entry.operator[0][1].removeprefix("Bearer ")), ("x-project", "vision")]
        await closed.service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)
        name, text = await anext(events)
        assert name == "problem"
        assert "revoked" in text
        with pytest.raises(StopAsyncIteration):
            await anext(events)


async def test_a_store_that_is_away_is_a_page_and_a_list_goes_on_afterwards(
    site: Site, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await browser.page("/jobs")
    store = site.service.store
    monkeypatch.setattr("training_service.web.pages.jobs._AWAY_SECONDS", 0.05)

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(type(store), "list_jobs", away)
        text = await browser.page("/jobs", 503)
        assert "The job store does not answer" in text
        async with browser.events("/jobs/live") as events:
            assert (await anext(events))[0] == "problem"
            patched.undo()
            async with asyncio.timeout(PATIENCE):
                while (await anext(events))[0] != "rows":
                    pass


async def test_a_stopping_service_ends_its_streams(site: Site, browser: Browser) -> None:
    async with browser.events("/jobs/live") as events:
        await anext(events)
        await site.dashboard.stop()
        async with asyncio.timeout(PATIENCE):
            async for _ in events:
                pass


async def test_streams_are_limited(visit: Visit) -> None:
    site = await visit(web={"address": "127.0.0.1:0", "streams": 1})
    browser = site.browser()
    async with browser.events("/jobs/live") as events:
        await anext(events)
        assert (await browser.get("/jobs/live")).status_code == 429
    assert await browser.page("/jobs")


async def test_requests_count_as_calls_of_the_api(visit: Visit) -> None:
    site = await visit(limits={"list_rate": 0.001, "list_burst": 2})
    browser = site.browser()
    await browser.page("/jobs")
    await browser.page("/jobs")
    answer = await browser.get("/jobs")
    assert answer.status_code == 429
    assert "limits.list_rate" in answer.text
    ended = [site.service.metrics.ended.get_nowait() for _ in range(3)]
    assert [code for _, code in ended][-1] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert ended[0][0] == "web jobs.table"
