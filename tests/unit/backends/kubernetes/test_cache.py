"""The cache of pods: lists, watches, and repairs."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.kubernetes.access import Access
from job_tracker.backends.kubernetes.api_errors import Forbidden, Unreachable
from job_tracker.backends.kubernetes.cache import PodCache, WatchTiming
from job_tracker.backends.kubernetes.client import KubernetesClient, Patience
from tests.support.patience import PATIENCE
from tests.support.scripted_api import Scripted, events, pod, pods, status

QUICK = WatchTiming(silence=60.0, first_pause=0.01, longest_pause=0.02)
SOON_SILENT = replace(QUICK, silence=0.5)


class Changes:
    """The changes that a cache reported: "+name version" and "-name"."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.came = asyncio.Event()

    def on_change(self, changes: Sequence[tuple[Any, bool]]) -> None:
        for changed, gone in changes:
            metadata = changed["metadata"]
            name, version = metadata["name"], metadata["resourceVersion"]
            self.changes.append(f"-{name}" if gone else f"+{name} {version}")
        self.came.set()

    async def until(self, change: str) -> list[str]:
        async with asyncio.timeout(PATIENCE):
            while change not in self.changes:
                self.came.clear()
                await self.came.wait()
        return self.changes


@pytest.fixture
def seen() -> Changes:
    return Changes()


@pytest.fixture
async def client(server: Scripted, tmp_path: Path) -> AsyncIterator[KubernetesClient]:
    # All answers are in time here. On a busy machine a shorter limit would repeat calls.
    patience = Patience(try_seconds=PATIENCE, total_seconds=2.0, first_pause=0.01, longest_pause=0.05)
    made = KubernetesClient(Access(kubeconfig=tmp_path / "kubeconfig"), "here", patience=patience)
    yield made
    await made.close()


@pytest.fixture
def timing() -> WatchTiming:
    return QUICK


@pytest.fixture
async def cache(client: KubernetesClient, seen: Changes, timing: WatchTiming) -> AsyncIterator[PodCache]:
    made = PodCache(client, "app=x", seen.on_change, timing)
    yield made
    await made.close()


def event(kind: str, name: str, version: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "object": pod(name, version, **more)}


async def test_existing_pods_and_then_every_change_are_reported(
    cache: PodCache, server: Scripted, seen: Changes
) -> None:
    changes = events(event("ADDED", "b", 6), event("MODIFIED", "a", 7), event("DELETED", "b", 8))
    server.answers = [pods(5, pod("a", 1)), changes]
    await cache.sync()
    assert seen.changes == ["+a 1"]
    assert await seen.until("-b") == ["+a 1", "+b 6", "+a 7", "-b"]
    assert "resourceVersion=5" in server.requests[1]


async def test_a_failure_of_the_first_list_is_raised(
    cache: PodCache, server: Scripted, seen: Changes
) -> None:
    server.answers = [status(503)] * 1000
    with pytest.raises(Unreachable):
        await cache.sync()
    server.answers = [pods(5, pod("a", 1))]
    await cache.sync()
    assert seen.changes == ["+a 1"]


async def test_a_watch_continues_from_the_last_bookmark(
    cache: PodCache, server: Scripted, seen: Changes
) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "90"}}}
    server.answers = [pods(5), events(bookmark), events(event("ADDED", "a", 91))]
    await cache.sync()
    await seen.until("+a 91")
    assert "resourceVersion=90" in server.requests[2]


@pytest.mark.parametrize("how", ["event", "answer"])
async def test_a_version_that_is_too_old_leads_to_a_new_list(
    cache: PodCache, server: Scripted, seen: Changes, how: str
) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    watch = events({"type": "ERROR", "object": gone}) if how == "event" else status(410, "Expired")
    server.answers = [pods(5, pod("a", 1), pod("b", 2)), watch, pods(9, pod("a", 1), pod("c", 8))]
    await cache.sync()
    assert await seen.until("-b") == ["+a 1", "+b 2", "+c 8", "-b"]


@pytest.mark.parametrize("fault", [status(500), status(403), events({"type": "ODD"})])
async def test_no_error_ends_the_watch(cache: PodCache, server: Scripted, seen: Changes, fault: Any) -> None:
    server.answers = [pods(5), fault, fault, fault, pods(9), events(event("ADDED", "a", 10))]
    await cache.sync()
    await seen.until("+a 10")


@pytest.mark.parametrize("timing", [SOON_SILENT])
async def test_a_silent_connection_is_replaced(cache: PodCache, server: Scripted, seen: Changes) -> None:
    server.answers = [pods(5), events(then_wait=60), pods(9, pod("a", 8))]
    await cache.sync()
    await seen.until("+a 8")


async def test_an_answer_to_a_write_is_not_replaced_by_an_older_version(
    cache: PodCache, server: Scripted, seen: Changes
) -> None:
    server.answers = [pods(5), events(then_wait=60)]
    await cache.sync()
    cache.put(pod("a", 20))
    cache.put(pod("a", 19))
    await server.was_asked(2)
    server.answers = [pods(15)]  # a list that is older than the write
    await cache.refresh()
    assert seen.changes == ["+a 20"]


async def test_a_late_answer_does_not_restore_a_deleted_pod(
    cache: PodCache, server: Scripted, seen: Changes
) -> None:
    server.answers = [pods(5), events(event("ADDED", "a", 6), event("DELETED", "a", 7))]
    await cache.sync()
    await seen.until("-a")
    cache.put(pod("a", 6))
    assert seen.changes == ["+a 6", "-a"]


async def test_a_replaced_pod_is_reported_as_gone_first(
    cache: PodCache, server: Scripted, seen: Changes
) -> None:
    server.answers = [pods(5, pod("a", 1, uid="one"))]
    await cache.sync()
    cache.put(pod("a", 9, uid="two"))
    assert seen.changes == ["+a 1", "-a", "+a 9"]


async def test_concurrent_calls_of_catch_up_share_a_list(
    cache: PodCache, server: Scripted, seen: Changes
) -> None:
    server.answers = [pods(5, pod("a", 1)), pods(9, pod("b", 8))]
    first = asyncio.create_task(cache.catch_up())
    await server.was_asked(1)
    # Later changes may be missing in the list in progress.
    await asyncio.gather(first, *(cache.catch_up() for _ in range(100)))
    assert len(server.requests) == 2
    assert seen.changes == ["+a 1", "+b 8", "-a"]


async def test_a_failed_list_is_not_shared(cache: PodCache, server: Scripted) -> None:
    server.answers = [status(403, "Forbidden"), pods(5)]
    outcomes = await asyncio.gather(cache.catch_up(), cache.catch_up(), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Forbidden, type(None)]


async def test_the_silence_of_the_watch_is_measured(cache: PodCache, server: Scripted, seen: Changes) -> None:
    before = cache.silent_seconds
    assert before is None
    bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "6"}}}
    server.answers = [pods(5), status(503), pods(5), events(bookmark, event("ADDED", "a", 7), then_wait=60)]
    await cache.sync()
    began = time.monotonic()
    await seen.until("+a 7")
    heard = time.monotonic()
    server.answers = [pods(9)]
    await cache.refresh()  # as for a stop; an answer to it does not prove that the watch works
    await asyncio.sleep(0.1)
    least, silent, most = time.monotonic() - heard, cache.silent_seconds, time.monotonic() - began
    assert silent is not None
    assert least <= silent <= most


async def test_only_fields_in_use_are_cached(client: KubernetesClient, server: Scripted) -> None:
    kept: list[Any] = []
    cache = PodCache(client, "app=x", lambda changes: kept.extend(changes), QUICK)
    whole = pod("a", 7, labels={"x": "y"}, managedFields=[{"manager": "kubelet"}])
    whole["spec"] = {
        "nodeName": "node-1",
        "volumes": [{"name": "scratch"}],
        "containers": [
            {"name": "training", "image": "i:1", "env": [], "volumeMounts": [{"name": "scratch"}]}
        ],
    }
    whole["status"] = {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}
    slimmed = pod("a", 7, labels={"x": "y"})
    slimmed |= {
        "spec": {"nodeName": "node-1", "containers": [{"name": "training", "image": "i:1", "env": []}]},
        "status": {"phase": "Running"},
    }
    del slimmed["kind"]
    server.answers = [pods(7, whole), events({"type": "DELETED", "object": whole}, then_wait=60)]
    await cache.sync()
    async with asyncio.timeout(PATIENCE):
        while len(kept) < 2:
            await asyncio.sleep(0.01)
    assert kept == [(slimmed, False), (slimmed, True)]
    await cache.close()
