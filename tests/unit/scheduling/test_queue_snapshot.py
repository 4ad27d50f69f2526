"""The queue as callers may see it: bounded, and without names of objects that they may not see."""

import json
import math
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from job_tracker.domain.caller import Role
from job_tracker.scheduling import queue_snapshot
from job_tracker.scheduling.mirror import Mirror
from job_tracker.scheduling.model import Allocation, Flavor, Node, Promise, Reason, Reserve
from job_tracker.scheduling.notes import WAITING
from job_tracker.scheduling.queue_snapshot import QueueSnapshot, snapshot_of
from job_tracker.scheduling.recipes import QueueRecipe
from job_tracker.scheduling.tree import Pool, tree_of
from job_tracker.store.sqlite import SqliteStore
from tests.support.callers import caller_with
from tests.support.jobs import NOON, spec

NODE = Node(name="secret-host", capacity={"instances": 8}, labels={"secret": "yes"})
FLAVOR = Flavor(name="default", capacity={"instances": 8}, nodes=(NODE,))
TREE = tree_of(
    Pool((FLAVOR,)), {"own": QueueRecipe(projects=("vision",)), "hidden": QueueRecipe(projects=("speech",))}
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


async def seen(store: SqliteStore, role: Role = Role.VIEWER, **wanted: Any) -> QueueSnapshot:
    queued = sum((await store.queued_by_queue()).values())
    mirror = Mirror(store, lambda: TREE, clock=lambda: NOON)
    try:
        return await mirror.ask(lambda seen: snapshot_of(seen, caller_with(role), queued, **wanted))
    finally:
        await mirror.close()


async def test_only_the_first_jobs_are_in_it(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_snapshot, "MOST_JOBS", 5)
    for _ in range(9):
        job = await store.submit(spec(project="vision", queue="own"), NOON, None, 100)
    await store.update(job.admitted(NOON, Allocation(nodes=("secret-host",))))
    found = await seen(store)
    assert [each.gang.job_id for each in found.jobs] == [9, 1, 2, 3, 4]
    assert found.omitted == 4


async def test_lanes_are_the_oldest_running_jobs_and_the_first_reserved_starts(store: SqliteStore) -> None:
    for _ in range(6):
        job = await store.submit(spec(project="vision", queue="own"), NOON, None, 100)
        if job.id in (2, 4):
            await store.update(job.admitted(NOON - timedelta(minutes=job.id), Allocation()))
    for job_id, at in ((5, 60.0), (3, 120.0), (6, math.inf)):
        reserve = Reserve(job_id, Promise(NOON.timestamp() + at, "default"), (Reason.CAPACITY,))
        values = TypeAdapter(Reserve).dump_python(reserve, mode="json", exclude_defaults=True)
        await store.keep_scheduling_notes({(WAITING, str(job_id)): json.dumps(values)})
    found = await seen(store, lanes=1)
    assert [each.gang.job_id for each in found.jobs] == [4, 5]
    assert (found.omitted_running, found.omitted) == (1, 3)


async def test_names_of_machines_are_for_callers_with_a_role_everywhere(store: SqliteStore) -> None:
    for role, name in ((Role.OPERATOR, "secret-host"), (Role.ADMIN, "1")):
        found = await seen(store, role, with_machines=True)
        assert found.flavors[0].nodes[0].name == name


async def test_machines_have_numbers_in_place_of_names(store: SqliteStore) -> None:
    job = await store.submit(spec(project="vision", queue="own"), NOON, None, 100)
    await store.update(job.admitted(NOON, Allocation(nodes=("secret-host",))))
    found = await seen(store, Role.OPERATOR)
    assert found.jobs[0].allocation == Allocation(nodes=("1",))
    assert found.jobs[0].admitted_at == NOON
    assert found.flavors[0].nodes == (Node(name="1", capacity={"instances": 8}),)


async def test_a_queue_that_is_gone_is_there_while_it_has_jobs(store: SqliteStore) -> None:
    await store.submit(spec(project="vision", queue="gone"), NOON, None, 100)
    assert set((await seen(store, Role.OPERATOR)).queues) == {"default", "own", "hidden", "gone"}
    found = await seen(store)
    assert set(found.queues) == {"default", "own", "#1", "#2"}
    assert found.jobs[0].gang.queue in {"#1", "#2"}


async def test_a_job_that_the_caller_may_not_see_has_no_id_and_no_project(store: SqliteStore) -> None:
    await store.submit(spec(project="speech", queue="hidden"), NOON, None, 100)
    (job,) = (await seen(store)).jobs
    assert (job.gang.job_id, job.project, job.gang.queue) == (0, "", "#1")
