"""The queue, the machines, the comparison, and the pages of operators."""

import re

import pytest

from job_tracker.scheduling import mirror
from tests.support.access import Entry, bearer
from tests.support.api_service import metadata
from tests.support.web_site import Browser, Site
from training_service._generated import access_service_pb2 as apb
from training_service._generated import training_service_pb2 as pb
from training_service.web.shared import SHORTEST_PAUSE


async def test_the_queue_says_why_each_job_waits(site: Site, browser: Browser) -> None:
    for name in ("first", "second"):
        await site.service.train(name=name)
    text = await browser.page("/queue")
    places = re.findall(r'data-label="Place" class="figure">(\d+)<', text)
    assert places == ["1", "2"]
    assert "first" in text
    assert "Shares and quotas" in text
    assert "first" in await browser.page("/queue?queue=default")


@pytest.mark.parametrize("query", ["queue=none", "project=%3Cb%3E", "after=x"])
async def test_a_bad_part_of_the_queue_is_named(browser: Browser, query: str) -> None:
    answer = await browser.get(f"/queue?{query}")
    assert answer.status_code in (400, 404)
    assert "<b>" not in answer.text


async def test_the_queue_changes_without_a_reload(site: Site, browser: Browser) -> None:
    async with browser.events("/queue/live") as events:
        assert "No job waits." in (await anext(events))[1]
        await site.service.train(name="first")
        assert "first" in (await anext(events))[1]


async def test_the_queue_shows_a_change_that_came_just_after_it_was_read(
    site: Site, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At the next version of the page, the copy of the queue is still fresh, as after a read that took long.
    monkeypatch.setattr(mirror, "_FRESH_SECONDS", 2 * SHORTEST_PAUSE)
    async with browser.events("/queue/live") as events:
        assert "No job waits." in (await anext(events))[1]
        await site.service.train(name="first")
        assert "first" in (await anext(events))[1]


async def test_jobs_of_other_projects_have_no_names_in_the_queue_and_on_machines(closed: Site) -> None:
    entry = Entry(closed.service)
    await entry.project("vision", alice="submitter")
    await entry.project("speech", bob="submitter")
    for name, project in (("alice", "vision"), ("bob", "speech")):
        sent = [*bearer((await entry.token(name)).text), ("x-project", project)]
        request = pb.TrainRequest(metadata=metadata(name=f"of-{name}"))
        await closed.service.stub.Train(request, metadata=sent)
    browser = closed.browser()
    await browser.log_in((await entry.token("alice")).text)
    for path in ("/queue", "/machines"):
        text = await browser.page(path)
        assert "of-bob" not in text
        assert "speech" not in text
        assert "vision" in text
    assert "/jobs/2" not in await browser.page("/queue")


async def test_machines_show_what_is_used_of_what_there_is(site: Site, browser: Browser) -> None:
    await site.service.train()
    text = await browser.page("/machines")
    assert "0 of 8" in text
    assert "instances" in text


async def test_a_comparison_marks_what_differs(site: Site, browser: Browser) -> None:
    await site.service.train({"EPOCHS": "3", "LR": "1"}, name="first")
    await site.service.train({"EPOCHS": "4", "LR": "1"}, name="second")
    text = await browser.page("/compare?job=1&job=2")
    epochs = re.search(r"<tr><th[^>]*>EPOCHS.*?</tr>", text, re.S)
    rate = re.search(r"<tr><th[^>]*>LR.*?</tr>", text, re.S)
    assert epochs is not None
    assert rate is not None
    assert "differs" in epochs[0]
    assert "differs" not in rate[0]
    assert 'data-jobs="1,2"' in text
    assert text == await browser.page("/compare?job=1,2")


@pytest.mark.parametrize(("query", "status"), [("", 400), ("job=x", 400), ("job=9", 404)])
async def test_a_bad_comparison_is_named(browser: Browser, query: str, status: int) -> None:
    await browser.page(f"/compare?{query}", status)


async def test_more_jobs_than_fit_are_not_compared(browser: Browser) -> None:
    query = "&".join(f"job={number}" for number in range(1, 22))
    assert "at most 20" in await browser.page(f"/compare?{query}", 400)


async def test_an_operator_sees_projects_tokens_and_the_audit(closed: Site) -> None:
    entry, browser = Entry(closed.service), closed.browser()
    await entry.project("vision", alice="submitter")
    made = await entry.token("ci", "vision", "submitter")
    await browser.log_in(entry.operator[0][1].removeprefix("Bearer "))
    assert "alice" in await browser.page("/operator")
    text = await browser.page("/operator/tokens")
    assert made.token.id in text
    assert made.text not in text
    assert made.token.id in await browser.page("/operator/tokens?project=vision")
    assert "create_token" in await browser.page("/operator/audit")
    assert "create_token" not in await browser.page("/operator/audit?caller=nemo")
    answer = await browser.post("/operator/tokens/revoke", {"id": made.token.id})
    assert answer.status_code == 303
    assert "revoked" in await browser.page("/operator/tokens")


async def test_others_do_not(closed: Site) -> None:
    entry, browser = Entry(closed.service), closed.browser()
    await entry.project("vision", alice="submitter")
    await entry.project("speech", bob="admin")
    made = await entry.stub.CreateToken(apb.CreateTokenRequest(name="other"), metadata=entry.operator)
    await browser.log_in((await entry.token("alice")).text)
    text = await browser.page("/operator")
    assert "vision" in text
    assert "speech" not in text
    for path in ("/operator/tokens", "/operator/audit", "/operator/tokens?project=vision"):
        await browser.page(path, 403)
    answer = await browser.post("/operator/tokens/revoke", {"id": made.token.id})
    assert answer.status_code == 404
