"""The requests that the dashboard refuses before a page sees them, and the headers of each answer."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.web_site import Browser, Site, Visit

EVIL = "<script>alert(1)</script>"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "",
        "[::1",
        "10.0.0.1",
    ],
)
async def test_an_unknown_host_is_refused_so_no_name_of_another_site_leads_here(
    browser: Browser, host: str
) -> None:
    answer = await browser.get("/jobs", host=host)
    assert answer.status_code in (400, 421)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:51002", "127.0.0.1:1", "127.9.9.9", "[::1]:51002"])
async def test_names_of_loopback_are_known(browser: Browser, host: str) -> None:
    assert (await browser.get("/jobs", host=host)).status_code == 200


async def test_a_configured_host_is_known(visit: Visit) -> None:
    site = await visit(web={"address": "127.0.0.1:0", "hosts": ["Jobs.example.org"]})
    assert (await site.browser().get("/jobs", host="jobs.example.org")).status_code == 200
    assert (await site.browser().get("/jobs", host="x.jobs.example.org")).status_code == 421


@pytest.mark.parametrize("path", ["/jobs", "/login", "/static/style.css", "/nothing", "/jobs?state=no"])
async def test_each_answer_forbids_inline_code_frames_and_other_origins(browser: Browser, path: str) -> None:
    headers = (await browser.get(path)).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert "server" not in headers


async def test_pages_have_no_inline_code_and_load_nothing_from_elsewhere(browser: Browser) -> None:
    for path in ("/jobs", "/login", "/nothing"):
        text = (await browser.get(path)).text
        assert " style=" not in text
        assert "<style" not in text
        assert "onclick" not in text
        assert "http://" not in text
        assert "https://" not in text
        assert text.count("<script") == text.count('<script src="/static/')


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
async def test_other_methods_are_refused(browser: Browser, method: str) -> None:
    assert (await browser.client.request(method, "/jobs")).status_code == 405


async def test_a_form_of_another_origin_is_refused(browser: Browser) -> None:
    proof = await browser.proof()
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        answer = await browser.post("/jobs/cancel", {"job": "1", "proof": proof}, **headers)
        assert answer.status_code == 403, headers


@pytest.mark.parametrize("proof", ["", "0" * 64, "é", "x" * 100_000])
async def test_a_form_without_the_proof_of_its_session_is_refused(browser: Browser, proof: str) -> None:
    await browser.page("/jobs")
    answer = await browser.post("/jobs/cancel", {"job": "1", "proof": proof})
    assert answer.status_code == 403
    assert "load the page again" in answer.text


async def test_the_proof_of_another_session_is_refused(site: Site) -> None:
    mine, other = site.browser(), site.browser()
    await mine.page("/jobs")
    answer = await mine.post("/jobs/cancel", {"job": "1", "proof": await other.proof()})
    assert answer.status_code == 403


async def test_a_form_without_a_session_is_refused(site: Site) -> None:
    proof = await site.browser().proof()
    answer = await site.browser().post("/jobs/cancel", {"job": "1", "proof": proof})
    assert answer.status_code == 403


async def test_a_large_form_is_refused_also_without_its_length(browser: Browser) -> None:
    await browser.page("/jobs")
    answer = await browser.post("/jobs/cancel", {"job": "1" * (1 << 20)})
    assert answer.status_code == 413

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * (1 << 16)

    try:
        answer = await browser.client.post("/jobs/cancel", content=endless())
    except httpx.HTTPError:  # the service has closed the connection while the browser still sent
        return
    assert answer.status_code == 413


async def test_many_fields_and_bytes_that_are_not_text_are_refused(browser: Browser) -> None:
    await browser.page("/jobs")
    kind = {"content-type": "application/x-www-form-urlencoded"}
    for content in (b"&".join([b"a=1"] * 3000), b"a=%ff", b"\xff"):
        answer = await browser.client.post("/jobs/cancel", content=content, headers=kind)
        assert answer.status_code == 400
    answer = await browser.client.post("/jobs/cancel", content=b"{}", headers={"content-type": "text/json"})
    assert answer.status_code == 400


async def test_an_unknown_address_is_a_page(browser: Browser) -> None:
    text = await browser.page(f"/nothing/{EVIL}", 404)
    assert "Not found" in text
    assert EVIL not in text


@pytest.mark.parametrize(
    "path",
    [
        "/static/../site.py",
        "/static/%2e%2e/site.py",
        "/static//etc/passwd",
        "/static/",
    ],
)
async def test_only_files_of_the_dashboard_are_served(browser: Browser, path: str) -> None:
    assert (await browser.get(path)).status_code == 404


async def test_files_are_compressed_and_kept_for_ever(browser: Browser) -> None:
    answer = await browser.get("/static/vendor/htmx-2.0.11.min.js")
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/javascript")


async def test_a_broken_request_does_not_stop_the_service(site: Site, browser: Browser) -> None:
    host, port = site.dashboard.url.removeprefix("http://").rstrip("/").split(":")
    for text in (b"\x16\x03\x01\x00\x00", b"GET /jobs HTTP/1.1\r\n\r\n", b"GET " + b"a" * 100_000):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(text)
        writer.write_eof()
        answer = await reader.read()
        assert b"HTTP/1.1 4" in answer or not answer
        assert b"Traceback" not in answer
        writer.close()
    assert await browser.page("/jobs")
