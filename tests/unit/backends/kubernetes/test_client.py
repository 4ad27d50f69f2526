"""The reaction of a call to every answer of an API server, and to none."""

import asyncio
import re
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from job_tracker.backends.kubernetes.access import Access
from job_tracker.backends.kubernetes.api_errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    Unreachable,
)
from job_tracker.backends.kubernetes.client import KubernetesClient, Patience
from job_tracker.common.tasks import end
from job_tracker.domain.errors import BackendUnavailable
from tests.support.patience import PATIENCE
from tests.support.scripted_api import IMPATIENT, Scripted, events, pod, pods, says, status

A_POD = pod("a", 1)
PATH = "/api/v1/namespaces/here/pods"


@pytest.mark.parametrize(
    ("code", "reason", "message", "kind"),
    [
        (403, "Forbidden", 'pods is forbidden: User "x" cannot create resource "pods"', Forbidden),
        (403, "Forbidden", 'pods "a" is forbidden: exceeded quota: few, requested: pods=1', QuotaExceeded),
        (404, "NotFound", 'pods "a" not found', NotFound),
        (409, "AlreadyExists", 'pods "a" already exists', AlreadyExists),
        (422, "Invalid", 'Pod "a" is invalid', Invalid),
        (400, "BadRequest", "cannot be handled as a Pod", Invalid),
        (418, "", "a teapot", ApiError),
    ],
)
async def test_a_permanent_error_is_not_retried(
    client: KubernetesClient, server: Scripted, code: int, reason: str, message: str, kind: type[ApiError]
) -> None:
    server.answers = [status(code, reason, message)]
    with pytest.raises(ApiError) as raised:
        await client.create("pods", A_POD)
    assert type(raised.value) is kind
    assert (raised.value.status, raised.value.message) == (code, message)
    assert isinstance(raised.value, BackendUnavailable)  # for callers that do not distinguish
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
async def test_a_temporary_error_is_retried(client: KubernetesClient, server: Scripted, code: int) -> None:
    server.answers = [status(code), status(code), says(A_POD)]
    assert await client.read("pods", "a") == A_POD
    assert server.counted == [("GET pods", str(code))] * 2 + [("GET pods", "200")]


async def test_retry_after_is_respected(client: KubernetesClient, server: Scripted) -> None:
    server.answers = [status(429, **{"Retry-After": "1"}), says(A_POD)]
    at = time.monotonic()
    await client.read("pods", "a")
    assert time.monotonic() - at >= 1


@pytest.mark.parametrize("excepted", ["", "away.example"])
async def test_the_proxy_of_the_environment_is_used_except_for_no_proxy(
    server: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excepted: str
) -> None:
    file = tmp_path / "kubeconfig"
    [here] = re.findall(r"http://127.0.0.1:[0-9]+", file.read_text())
    file.write_text(file.read_text().replace(here, "http://away.example"))
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, here)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, excepted)
    monkeypatch.setattr(socket, "getaddrinfo", _knows_loopback_only)
    patience = IMPATIENT if excepted else Patience(try_seconds=PATIENCE, total_seconds=PATIENCE)
    client = KubernetesClient(Access(kubeconfig=file), "here", patience=patience)
    server.answers = [says(A_POD)]
    try:
        if excepted:
            with pytest.raises(Unreachable):
                await client.read("pods", "a")
            assert server.requests == []
        else:
            assert await client.read("pods", "a") == A_POD
    finally:
        await client.close()


def _knows_loopback_only(host: str, port: int, *_: object, **__: object) -> list[object]:
    if host != "127.0.0.1":
        raise socket.gaierror(socket.EAI_NONAME, "unknown")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]


@pytest.mark.parametrize("patience", [replace(IMPATIENT, try_seconds=PATIENCE)])
async def test_retries_end_after_the_total_time(client: KubernetesClient, server: Scripted) -> None:
    server.answers = [status(503, message="etcd is away")] * 1000
    at = time.monotonic()
    with pytest.raises(Unreachable, match="etcd is away"):
        await client.read("pods", "a")
    assert time.monotonic() - at > 2
    assert len(server.requests) < 100


async def test_an_error_body_that_is_no_status_is_shortened(
    client: KubernetesClient, server: Scripted
) -> None:
    server.answers = [says([1, 2])]

    async def html(_: object) -> object:
        from aiohttp import web

        return web.Response(status=404, text="<html>" + "x" * 100_000)

    server.answers = [html]  # type: ignore[list-item]
    with pytest.raises(NotFound) as raised:
        await client.read("pods", "a")
    assert len(str(raised.value)) < 3000


async def test_a_create_without_an_answer_checks_for_the_object_before_the_retry(
    client: KubernetesClient, server: Scripted
) -> None:
    server.answers = [status(504, "Timeout"), says(A_POD)]
    with pytest.raises(AlreadyExists):
        await client.create("pods", A_POD)
    assert server.requests == [f"POST {PATH}", f"GET {PATH}/a"]


async def test_a_create_without_effect_is_repeated(client: KubernetesClient, server: Scripted) -> None:
    server.answers = [status(500), status(404, "NotFound"), says(A_POD)]
    assert await client.create("pods", A_POD) == A_POD
    assert [request.split()[0] for request in server.requests] == ["POST", "GET", "POST"]


async def test_a_create_is_not_repeated_before_the_check_succeeds(
    client: KubernetesClient, server: Scripted
) -> None:
    server.answers = [status(500), status(503), status(503), status(404, "NotFound"), says(A_POD)]
    await client.create("pods", A_POD)
    assert [request.split()[0] for request in server.requests] == ["POST", "GET", "GET", "GET", "POST"]


async def test_a_conflict_over_a_quota_is_retried(client: KubernetesClient, server: Scripted) -> None:
    busy = status(409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "few"')
    server.answers = [busy, status(404, "NotFound"), says(A_POD)]
    await client.create("pods", A_POD)


async def test_a_dry_run_is_repeated_without_a_check(client: KubernetesClient, server: Scripted) -> None:
    server.answers = [status(500), says(A_POD)]
    await client.create("pods", A_POD, dry_run=True)
    assert server.requests == [f"POST {PATH}?dryRun=All"] * 2


@pytest.mark.parametrize("answer", [status(404, "NotFound"), status(409, "Conflict")])
async def test_deleting_a_missing_or_replaced_object_succeeds(
    client: KubernetesClient, server: Scripted, answer: object
) -> None:
    server.answers = [answer]  # type: ignore[list-item]
    await client.delete("pods", "a", "uid", 1)
    assert len(server.requests) == 1


async def test_changing_a_replaced_object_is_a_conflict(client: KubernetesClient, server: Scripted) -> None:
    server.answers = [status(409, "Conflict")]
    with pytest.raises(Conflict):
        await client.change("pods", "a", "uid", {"labels": {"x": "y"}})


async def test_a_list_is_read_in_pages(client: KubernetesClient, server: Scripted) -> None:
    server.answers = [pods(5, pod("a", 1), more="next"), pods(5, pod("b", 2))]
    listing = await client.list("pods", "app=x")
    assert [item["metadata"]["name"] for item in listing.items] == ["a", "b"]
    assert listing.version == "5"
    assert server.requests[1].endswith("labelSelector=app%3Dx&limit=500&continue=next")


@pytest.mark.parametrize("patience", [replace(IMPATIENT, total_seconds=PATIENCE)])
async def test_a_silent_server_is_asked_again(client: KubernetesClient, server: Scripted) -> None:
    reading = asyncio.create_task(client.read("pods", "a"))
    await server.was_asked(2)
    await end(reading)
    assert set(server.counted) == {("GET pods", "none")}


@pytest.mark.parametrize("patience", [IMPATIENT])
async def test_a_silent_server_leads_to_a_time_out(client: KubernetesClient, server: Scripted) -> None:
    with pytest.raises(Unreachable, match="in time"):
        await client.read("pods", "a")
    assert set(server.counted) == {("GET pods", "none")}


async def test_many_calls_that_give_way_leave_room_for_others(server: Scripted, tmp_path: Path) -> None:
    # All answers are in time here. On a busy machine a shorter limit would repeat calls.
    patience = Patience(try_seconds=100.0, total_seconds=100.0)
    access = Access(kubeconfig=tmp_path / "kubeconfig")
    client = KubernetesClient(access, "here", calls=32, patience=patience)
    held = asyncio.Event()

    async def slow(_: web.Request) -> web.StreamResponse:
        await held.wait()
        return web.json_response(A_POD)

    async def in_bulk() -> None:
        with client.giving_way():
            await client.read("pods", "a")

    most = 32 // 4
    server.answers = [slow] * most
    crowd = [asyncio.create_task(in_bulk()) for _ in range(1000)]
    await server.was_asked(most)
    server.answers = [says(A_POD)]
    assert await client.create("pods", A_POD) == A_POD
    assert len(server.requests) == most + 1
    server.answers = [says(A_POD)] * 1000
    held.set()
    await asyncio.gather(*crowd)
    assert len(server.requests) == 1000 + 1
    await client.close()


async def test_many_log_streams_do_not_block_a_watch(server: Scripted, tmp_path: Path) -> None:
    client = KubernetesClient(Access(kubeconfig=tmp_path / "kubeconfig"), "here", calls=1, streams=3)

    async def read_log() -> None:
        async for _ in client.logs("a", [("follow", "true")], silence=60):
            pass

    added = {"type": "ADDED", "object": A_POD}
    server.answers = [events(then_wait=60)] * 3
    readers = [asyncio.create_task(read_log()) for _ in range(5)]
    await server.was_asked(3)
    server.answers = [events(added)]
    async with asyncio.timeout(PATIENCE):
        seen = [event async for event in client.watch("pods", "app=x", "1", seconds=60, silence=60)]
    assert seen == [("ADDED", A_POD)]
    assert len(server.requests) == 3 + 1  # the other readers wait for a place
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    await client.close()
