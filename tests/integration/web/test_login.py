"""The identity of a visitor, and the end of a session."""

import time
from datetime import timedelta
from functools import partial

import pytest

from job_tracker.access import tokens
from tests.support.access import Entry
from tests.support.web_site import Browser, Site, Visit
from training_service._generated import access_service_pb2 as apb
from training_service.web.sessions import Sessions


async def test_without_tokens_every_visitor_is_the_operator_as_at_the_api(browser: Browser) -> None:
    assert "operator" in await browser.page("/jobs")


async def test_a_page_leads_to_the_login_and_back(closed: Site) -> None:
    browser = closed.browser()
    answer = await browser.get("/jobs?state=running")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fjobs%3Fstate%3Drunning"
    token = closed.operator_token()
    await browser.page("/login")
    answer = await browser.post("/login", {"token": token, "next": "/jobs?state=running"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/jobs?state=running"
    assert "operator" in await browser.page("/jobs")
    assert token not in answer.headers["set-cookie"]


async def test_no_script_and_no_other_site_gets_the_cookie(closed: Site) -> None:
    browser = closed.browser()
    answer = await browser.get("/login")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie


TOKENS = {"none": "", "short": "x", "unknown": tokens.new_token().text, "two lines": "a\r\nb", "accent": "é"}


# The parameters have ids, because a random id would make a different test in each process.
@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
async def test_a_wrong_token_is_refused_and_noted(closed: Site, token: str) -> None:
    browser = closed.browser()
    answer = await browser.post("/login", {"token": token})
    assert answer.status_code == 401
    assert 'role="alert"' in answer.text
    assert (await browser.get("/jobs")).status_code == 303


@pytest.mark.parametrize(
    "there",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:1",
        "/a\nb",
    ],
)
async def test_a_login_never_leads_to_another_site(closed: Site, there: str) -> None:
    answer = await closed.browser().post("/login", {"token": closed.operator_token(), "next": there})
    assert answer.headers["location"] == "/jobs"


async def test_a_login_makes_a_new_session(closed: Site) -> None:
    browser = closed.browser()
    proof = await browser.proof()
    await browser.log_in(closed.operator_token())
    assert await browser.proof() != proof


async def test_a_logout_ends_the_session_in_the_browser(closed: Site) -> None:
    browser = closed.browser()
    await browser.log_in(closed.operator_token())
    assert (await browser.post("/logout", {})).status_code == 303
    assert (await browser.get("/jobs")).status_code == 303


async def test_a_revoked_token_ends_its_sessions(closed: Site) -> None:
    entry, browser = Entry(closed.service), closed.browser()
    await entry.project("vision", alice="viewer")
    made = await entry.token("alice")
    await browser.log_in(made.text)
    assert "alice" in await browser.page("/jobs")
    await entry.stub.RevokeToken(apb.RevokeTokenRequest(id=made.token.id), metadata=entry.operator)
    answer = await browser.get("/jobs")
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login")


async def test_roles_count_at_each_request(closed: Site) -> None:
    entry, browser = Entry(closed.service), closed.browser()
    await entry.project("vision", alice="viewer")
    await entry.project("speech")
    await browser.log_in((await entry.token("alice")).text)
    await browser.page("/jobs?project=vision")
    await browser.page("/jobs?project=speech", 403)
    await entry.member("speech", "alice", "viewer")
    await browser.page("/jobs?project=speech")


async def test_an_expired_session_is_none(closed: Site) -> None:
    browser = closed.browser()
    for age, status in ((timedelta(minutes=59), 200), (timedelta(minutes=61), 303)):
        then = time.time() - age.total_seconds()
        sessions = Sessions(
            partial(getattr, closed.service.keys, "current"), timedelta(hours=1), partial(float, then)
        )
        session = sessions.begin(tokens.OPERATOR_ID, "default")
        name = f"training-{await closed.service.store.store_id()}"
        cookie = f"{name}={sessions.cookie_of(session)}"
        assert (await browser.get("/jobs", cookie=cookie)).status_code == status


async def test_a_link_of_another_site_loads_the_page_again_and_changes_no_session(closed: Site) -> None:
    answer = await closed.browser().get("/jobs", **{"sec-fetch-site": "cross-site"})
    assert answer.status_code == 200
    assert 'http-equiv="refresh"' in answer.text
    assert "set-cookie" not in answer.headers


async def test_wrong_tokens_are_limited(visit: Visit) -> None:
    site = await visit(
        auth={"loopback": "token"}, limits={"failed_token_rate": 0.001, "failed_token_burst": 2}
    )
    browser = site.browser()
    for _ in range(2):
        assert (await browser.post("/login", {"token": tokens.new_token().text})).status_code == 401
    answer = await browser.post("/login", {"token": tokens.new_token().text})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
