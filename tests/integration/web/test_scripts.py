"""Programs that load downloads with a token, without a login."""

import httpx
import pytest

from job_tracker.access import tokens
from tests.support.access import Entry, bearer
from tests.support.api_service import metadata
from tests.support.patience import PATIENCE
from tests.support.web_site import Site, Visit, measured
from training_service._generated import access_service_pb2 as apb
from training_service._generated import training_service_pb2 as pb

DOWNLOADS = ("/series.csv?job=1", "/series.zip?job=1")


async def fetch(site: Site, path: str, *sent: tuple[str, str], **headers: str) -> httpx.Response:
    """Load a path as curl does: any type of content, no cookies, no redirects."""
    async with httpx.AsyncClient(base_url=site.dashboard.url, timeout=PATIENCE) as client:
        return await client.get(path, headers=[("accept", "*/*"), *sent, *headers.items()])


@pytest.mark.parametrize("path", DOWNLOADS)
async def test_a_download_takes_the_token_of_the_api(closed: Site, path: str) -> None:
    entry = Entry(closed.service)
    await entry.project("vision", alice="viewer", bob="submitter")
    sent = [*bearer((await entry.token("bob")).text), ("x-project", "vision")]
    await closed.service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)
    answer = await fetch(closed, path, *bearer((await entry.token("alice")).text))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"].startswith('attachment; filename="job-1.')
    assert "set-cookie" not in answer.headers


async def test_the_rights_of_the_token_count(closed: Site) -> None:
    entry = Entry(closed.service)
    await entry.project("vision", alice="viewer")
    await entry.project("speech", bob="submitter")
    sent = [*bearer((await entry.token("bob")).text), ("x-project", "speech")]
    await closed.service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)
    answer = await fetch(closed, DOWNLOADS[0], *bearer((await entry.token("alice")).text))
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == "Job 1 doesn't exist\n"


WRONG = {
    "unknown": [("authorization", f"Bearer {tokens.new_token().text}")],
    "empty": [("authorization", "")],
    "another scheme": [("authorization", "Basic b3BlcmF0b3I6eA==")],
    "twice": [("authorization", "Bearer a"), ("authorization", "Bearer b")],
}


@pytest.mark.parametrize("path", DOWNLOADS)
@pytest.mark.parametrize("sent", WRONG.values(), ids=WRONG)
async def test_a_wrong_token_is_refused_with_a_reason_and_without_a_redirect(
    closed: Site, path: str, sent: list[tuple[str, str]]
) -> None:
    answer = await fetch(closed, path, *sent)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="training-service", error="invalid_token"'
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.count("\n") == 1
    assert "<" not in answer.text
    assert "set-cookie" not in answer.headers


async def test_a_wrong_token_is_refused_even_by_an_open_dashboard(site: Site) -> None:
    await measured(site, "first", loss=[1.0])
    assert (await fetch(site, DOWNLOADS[0])).status_code == 200
    assert (await fetch(site, DOWNLOADS[0], *WRONG["unknown"])).status_code == 401


async def test_a_wrong_token_is_refused_beside_a_login_and_does_not_end_it(closed: Site) -> None:
    await submitted_by_operator(closed)
    browser = closed.browser()
    await browser.log_in(closed.operator_token())
    assert (await browser.get(DOWNLOADS[0])).status_code == 200
    assert (await browser.get(DOWNLOADS[0], **dict(WRONG["unknown"]))).status_code == 401
    assert (await browser.get(DOWNLOADS[0])).status_code == 200


async def submitted_by_operator(site: Site) -> None:
    """Submit a job with the token of the operator."""
    await site.service.stub.Train(
        pb.TrainRequest(metadata=metadata()), metadata=bearer(site.operator_token())
    )


async def test_a_revoked_token_is_refused(closed: Site) -> None:
    entry = Entry(closed.service)
    await entry.project("vision", alice="viewer")
    made = await entry.token("alice")
    assert (await fetch(closed, DOWNLOADS[0], *bearer(made.text))).status_code == 404
    await entry.stub.RevokeToken(apb.RevokeTokenRequest(id=made.token.id), metadata=entry.operator)
    answer = await fetch(closed, DOWNLOADS[0], *bearer(made.text))
    assert answer.status_code == 401
    assert "was revoked at" in answer.text


async def test_wrong_tokens_of_downloads_are_limited_and_noted(visit: Visit) -> None:
    site = await visit(
        auth={"loopback": "token"}, limits={"failed_token_rate": 0.001, "failed_token_burst": 2}
    )
    statuses = [(await fetch(site, DOWNLOADS[0], *WRONG["unknown"])).status_code for _ in range(3)]
    assert statuses == [401, 401, 429]
    await site.service.trail.flush()
    [event] = await site.service.store.events_after(0, 10)
    assert (event.action, event.outcome.value, event.count) == ("authenticate", "denied", 2)


async def test_without_a_login_only_a_browser_is_led_to_the_login(closed: Site) -> None:
    for path in (*DOWNLOADS, "/jobs"):
        assert (await fetch(closed, path)).status_code == 401
        assert (await closed.browser().get(path)).status_code == 303
    answer = await fetch(closed, DOWNLOADS[0])
    assert answer.headers["www-authenticate"] == 'Bearer realm="training-service"'
    assert "authorization: Bearer TOKEN" in answer.text
    assert "set-cookie" not in answer.headers
    answer = await fetch(closed, "/jobs")
    assert answer.text == "log in to see this page\n"


async def test_other_pages_and_forms_take_no_token(closed: Site) -> None:
    token = bearer(closed.operator_token())
    assert (await fetch(closed, "/jobs", *token)).status_code == 401
    browser = closed.browser()
    answer = await browser.post("/jobs/1/cancel", {"proof": "0" * 64}, **dict(token))
    assert answer.status_code == 403


async def test_a_page_of_another_site_cannot_load_a_download_by_a_token(closed: Site) -> None:
    await submitted_by_operator(closed)
    sent = {"sec-fetch-site": "cross-site", "origin": "https://evil.example"}
    answer = await fetch(closed, DOWNLOADS[0], *bearer(closed.operator_token()), **sent)
    assert "job,metric" not in answer.text
    assert "access-control-allow-origin" not in answer.headers
