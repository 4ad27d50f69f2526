"""Replicas write notes about themselves, in which operators see the replicas and the leader."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from job_tracker.common.tasks import end
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.replicas import REPLICA, Presence, Replica, replicas_of
from tests.support.jobs import NOON
from tests.support.patience import PATIENCE

NOW = NOON.timestamp()
ONE = Replica(name="host/1", version="0.1", started_at=NOW, address="127.0.0.1:1")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


async def seen(store: SqliteStore, count: int) -> list[Replica]:
    """Return the replicas once this number of them have measured the store."""
    async with asyncio.timeout(PATIENCE):
        while len(found := await replicas_of(store)) != count:
            await asyncio.sleep(0.005)
    return found


async def test_a_replica_is_seen_with_what_it_does_until_it_stops(store: SqliteStore) -> None:
    presence = Presence(store, ONE, lambda: NOW + 5)
    running = asyncio.create_task(presence.run())
    [found] = await seen(store, 1)
    assert found == replace(ONE, seen_at=NOW + 5)
    presence.lead(True)
    async with asyncio.timeout(PATIENCE):
        while not (found := (await replicas_of(store))[0]).is_leading:
            await asyncio.sleep(0.005)
    assert found.store_seconds > 0
    assert not found.is_missing(NOW + 60)
    assert found.is_missing(NOW + 600)
    await end(running)
    await presence.close()
    await presence.close()
    assert await replicas_of(store) == []


async def test_replicas_that_were_killed_long_ago_are_forgotten_and_foreign_notes_do_no_harm(
    store: SqliteStore,
) -> None:
    for name, seen_at in (("host/2", NOW - 100_000), ("host/3", NOW - 300)):
        other = json.dumps(asdict(replace(ONE, name=name, seen_at=seen_at)))
        await store.keep_scheduling_notes({(REPLICA, name): other})
    await store.keep_scheduling_notes({(REPLICA, "host/4"): "{"})
    running = asyncio.create_task(Presence(store, ONE, lambda: NOW).run())
    async with asyncio.timeout(PATIENCE):
        while [each.name for each in await replicas_of(store)] != ["host/1", "host/3"]:
            await asyncio.sleep(0.005)
    await end(running)
    assert set(await store.scheduling_notes(REPLICA)) == {"host/1", "host/3"}


async def test_a_store_that_is_away_ends_nothing(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = asyncio.Event()

    async def away(_kind: str) -> dict[str, str]:
        tried.set()
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(store, "scheduling_notes", away)
        running = asyncio.create_task(Presence(store, ONE, lambda: NOW, period=0.005).run())
        await tried.wait()
    await seen(store, 1)
    await end(running)
