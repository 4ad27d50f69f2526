"""Operators see replicas and stores; others see nothing of them."""

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

import pytest

from job_tracker.access.service_view import ServiceView
from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.caller import ALL_PROJECTS, Role
from job_tracker.domain.errors import Forbidden
from job_tracker.domain.states import JobState
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.replicas import REPLICA, Replica
from tests.support.callers import caller_with
from tests.support.jobs import NOON, spec

NOW = NOON.timestamp()
OPERATOR = caller_with(Role.OPERATOR, ALL_PROJECTS)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


def view(store: SqliteStore, storage: str, events: list[AuditEvent] | None = None) -> ServiceView:
    noted = events if events is not None else []
    return ServiceView(
        store, store_id="0", store_place="SQLite", storage=storage, note=noted.append, clock=lambda: NOON
    )


async def test_the_leader_is_the_replica_that_said_so_last(store: SqliteStore, tmp_path: Path) -> None:
    await store.submit(spec(), NOON, None, 100)
    for name, seen_at, is_leading in (
        ("a", NOW - 900, True),
        ("b", NOW - 9, True),
        ("c", NOW - 3, True),
        ("d", NOW, False),
    ):
        replica = Replica(name=name, version="1", started_at=NOW, seen_at=seen_at, is_leading=is_leading)
        await store.keep_scheduling_notes({(REPLICA, name): json.dumps(asdict(replica))})
    found = await view(store, str(tmp_path)).see_service(OPERATOR)
    assert [each.name for each in found.replicas] == ["a", "b", "c", "d"]
    assert found.leader is not None
    assert found.leader.name == "c"
    assert found.jobs == {JobState.QUEUED: 1}
    assert found.storage.problem == ""
    assert found.storage.free


async def test_a_storage_that_is_not_there_is_named(store: SqliteStore, tmp_path: Path) -> None:
    found = await view(store, str(tmp_path / "none")).see_service(OPERATOR)
    assert "does not exist yet" in found.storage.problem
    assert found.leader is None
    unknown = await view(store, "unknown-protocol://x").see_service(OPERATOR)
    assert "unknown-protocol" in unknown.storage.problem


async def test_only_operators_see_it(store: SqliteStore, tmp_path: Path) -> None:
    events: list[AuditEvent] = []
    with pytest.raises(Forbidden, match="only an operator may see the replicas"):
        await view(store, str(tmp_path), events).see_service(caller_with(Role.ADMIN))
    assert [event.action for event in events] == ["see_service"]
