"""Stores that earlier versions of this service have written (data/)."""

import json
import re
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from job_tracker.domain.allocation import Allocation
from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.caller import Role
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.group import InstanceOptions, Phase
from job_tracker.domain.job import Job, JobState
from job_tracker.domain.policies import Deadlines, Elastic, RetryPolicy
from job_tracker.scheduling.board import Board
from job_tracker.scheduling.model import Flavor, Queue
from job_tracker.scheduling.notes import NoteKeeper
from job_tracker.scheduling.planner import plan
from job_tracker.store.audit import AuditFilter
from job_tracker.store.base import Store
from job_tracker.store.jobs import JobFilter, RequestKey
from job_tracker.store.redis import Address, RedisStore
from job_tracker.store.redis.keys import SCHEMA
from job_tracker.store.specs import dumped, loaded
from job_tracker.store.sqlite import SqliteStore
from job_tracker.store.sqlite.migrations import MIGRATIONS
from job_tracker.tracking.admitting import Admitting
from tests.support.catalog import algorithm_of, pod_resolver
from tests.support.jobs import NOON, spec
from tests.support.redis_server import ANSWER_SECONDS, server_or_skip

DATA = Path(__file__).with_name("data")
_MOVES_OF_JOB_1 = [JobState.QUEUED, JobState.LAUNCHING, JobState.RUNNING, JobState.SUCCEEDED]
VERSIONS = [
    *(pytest.param("sqlite", n, id=f"sqlite-{n}") for n in range(1, len(MIGRATIONS))),
    *(pytest.param("redis", n, id=f"redis-{n}") for n in range(1, SCHEMA)),
]


@pytest.fixture
async def old_store(kind: str, version: int, tmp_path: Path) -> AsyncIterator[Store]:
    """Open the store with this version. It has a job in each state; the second failed: its node was lost."""
    if kind == "sqlite":
        path = tmp_path / "jobs.db"
        with sqlite3.connect(path) as connection:
            connection.executescript((DATA / f"sqlite-{version}.sql").read_text())
        connection.close()
        store: Store = await SqliteStore.open(path)
        yield store
        await store.close()
    else:
        server = server_or_skip(tmp_path / "redis")
        server.start()
        try:
            client: Any = redis.Redis.from_url(server.url)
            for command in json.loads((DATA / f"redis-{version}.json").read_text()):
                client.execute_command(*command)
            client.close()
            store = await RedisStore.open(Address(server.url), answer_seconds=ANSWER_SECONDS)
            yield store
            await store.close()
        finally:
            server.end()


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
async def test_every_job_is_unchanged(old_store: Store, version: int) -> None:
    jobs = {job.id: job for job in (await old_store.list_jobs(JobFilter(), limit=100)).jobs}
    assert {job_id: job.state for job_id, job in jobs.items()} == {
        1: JobState.SUCCEEDED,
        2: JobState.FAILED,
        3: JobState.RUNNING,
        4: JobState.LAUNCHING,
        5: JobState.QUEUED,
        6: JobState.CANCELLED,
    }
    assert jobs[1].finished_at == NOON + timedelta(seconds=21)
    assert jobs[2].diagnosis is not None
    assert jobs[2].diagnosis.category is Category.NODE_LOST
    assert [rank.phase for rank in jobs[3].ranks] == [Phase.RUNNING] * 3
    assert jobs[3].progress is not None
    assert jobs[3].progress.metrics == {"loss": 0.5}
    # Values that did not exist then have defaults: a job that was to run once runs once.
    assert {job.spec.retry for job in jobs.values()} == {RetryPolicy()}
    assert {job.spec.deadlines for job in jobs.values()} == {Deadlines()}
    assert {job.due_at for job in jobs.values()} == {None}
    assert [move.state for move in jobs[1].history] == ([] if version == 1 else _MOVES_OF_JOB_1)
    # Jobs keep their folders, and so their checkpoints.
    assert jobs[3].checkpoint_uri == "/storage/checkpoints/3"
    assert jobs[3].model_uri == "/storage/models/a-model/3"
    assert jobs[3].group.job_folder == "3"


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
async def test_every_job_belongs_to_the_default_project(old_store: Store) -> None:
    default, other = frozenset({"default"}), frozenset({"other"})
    listed = await old_store.list_jobs(JobFilter(projects=default), limit=100)
    assert [job.id for job in listed.jobs] == [6, 5, 4, 3, 2, 1]
    assert {(job.spec.project, job.spec.submitted_by) for job in listed.jobs} == {("default", "")}
    assert (await old_store.list_jobs(JobFilter(projects=other), limit=100)).jobs == []
    live = frozenset({JobState.RUNNING, JobState.LAUNCHING})
    found = await old_store.list_jobs(JobFilter(projects=default, states=live), limit=100)
    assert [job.id for job in found.jobs] == [4, 3]

    await old_store.update((await old_store.get(5)).admitted(NOON))
    counts = (await old_store.tallies_of(["default"]))["default"]
    assert {state: jobs for state, jobs in counts.items() if jobs} == {
        JobState.SUCCEEDED: 1,
        JobState.FAILED: 1,
        JobState.RUNNING: 1,
        JobState.LAUNCHING: 2,
        JobState.CANCELLED: 1,
    }
    same_key = RequestKey("key-5", bytes([4]) * 4, "other")
    assert await old_store.find_submitted(same_key) is None, "each project has its own keys"
    await old_store.delete([1, 2])
    left = await old_store.list_jobs(JobFilter(projects=default), limit=100)
    assert [job.id for job in left.jobs] == [6, 5, 4, 3]


@pytest.mark.parametrize(("kind", "version"), [("sqlite", 3), ("redis", 2)])
async def test_group_options_are_read_and_resolved_when_needed(old_store: Store) -> None:
    specs = {job_id: (await old_store.get(job_id)).spec for job_id in (3, 4, 5)}
    assert [spec.group.backend for spec in specs.values()] == ["", "", ""]
    assert specs[3].group.roles == {"master": 1, "worker": 2}
    assert specs[3].group.elastic == Elastic(min_instances=2)
    assert specs[4].pod_options == InstanceOptions(nproc_per_node=2)
    assert specs[5].pod_options == InstanceOptions(labels={"team": "ml"})

    algorithm = algorithm_of(kubernetes={"image": "image:1", "command": ["train"]}, environment={"A": "b"})
    resolver = pod_resolver({"program": algorithm})
    resolved = {job_id: resolver.completed(spec) for job_id, spec in specs.items()}
    assert {spec.group.trainers.image for spec in resolved.values()} == {"image:1"}
    assert resolved[3].group.elastic == Elastic(min_instances=2)
    assert resolved[4].group.training_processes == 2
    assert resolved[5].group.trainers.labels == {"team": "ml"}
    assert loaded(dumped(resolved[5])) == resolved[5]


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
async def test_an_old_store_keeps_events_from_now_on(old_store: Store) -> None:
    assert await old_store.list_events(AuditFilter(), limit=10) == []
    event = AuditEvent(at=NOON, action="submit", outcome=Outcome.DONE)
    await old_store.submit(spec(), NOON, None, 100, event=event)
    assert [each.target for each in await old_store.list_events(AuditFilter(), limit=10)] == ["job 7"]


@pytest.mark.parametrize(("kind", "version"), [("sqlite", 7)])
async def test_tokens_and_projects_stay(old_store: Store) -> None:
    assert [token.caller_name for token in await old_store.list_tokens(None, limit=10)] == ["vision/ci"]
    assert [project.members for project in await old_store.projects()] == [{"alice": Role.ADMIN}]


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
async def test_an_old_store_gets_an_id(old_store: Store) -> None:
    assert re.fullmatch("[0-9a-f]{8}", await old_store.store_id())


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
async def test_the_service_continues_where_the_old_one_stopped(old_store: Store) -> None:
    assert (await old_store.find_submitted(RequestKey("key-5", bytes([4]) * 4))) == await old_store.get(5)
    assert [job.id for job in sorted(await old_store.live_jobs(), key=_by_id)] == [3, 4]
    [head] = await old_store.first_queued(1)
    assert head is not None
    assert head.id == 5
    assert (await old_store.submit(spec(), NOON, None, 100)).id == 7
    tallies = await old_store.tallies()
    assert (tallies[JobState.QUEUED].jobs, tallies[JobState.RUNNING].instances) == (2, 3)

    running = await old_store.get(3)
    assert running.progress is not None
    back = await old_store.get((await _retried(old_store, running)).id)
    assert await old_store.queue_position(await old_store.get(5)) == 1
    assert await old_store.first_queued(1) == [back]


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
async def test_every_old_job_waits_in_the_default_queue_and_has_no_allocation(old_store: Store) -> None:
    jobs = (await old_store.list_jobs(JobFilter(), limit=100)).jobs
    assert {job.allocation for job in jobs} == {None}
    assert await old_store.queued_by_queue() == {"default": 1}
    launching = await old_store.update((await old_store.get(5)).admitted(NOON, Allocation(trainers=1)))
    assert (await old_store.get(5)).allocation == launching.allocation
    assert await old_store.queued_by_queue() == {}
    assert (await old_store.tallies())[JobState.QUEUED].jobs == 0


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
async def test_an_old_queued_job_is_admitted_beside_what_runs(old_store: Store) -> None:
    queues = {"default": Queue(name="default", max_running=3)}
    pool = (Flavor(name="default", capacity={"instances": 100}),), queues
    board = Board(lambda: pool, half_life=100.0)

    async def save(_: Job, after: Job) -> Job:
        return await old_store.update(after)

    admitting = Admitting(
        *(old_store, plan, board, NoteKeeper(old_store, None), save),
        *(lambda _: None, lambda: None, lambda: NOON),
    )
    await admitting.run()
    admitted = await old_store.get(5)
    assert (admitted.state, admitted.spec.queue) == (JobState.LAUNCHING, "default")
    assert admitted.allocation == Allocation()
    assert sorted(board.running) == [3, 4, 5]
    assert {each.gang.queue for each in board.running.values()} == {"default"}


async def _retried(store: Store, job: Job) -> Job:
    """Return the job queued again after a failure, which its (old) policy would not have allowed."""
    waiting = await store.update(replace(job, state=JobState.BACKOFF))
    return await store.update(replace(waiting, state=JobState.QUEUED))


def _by_id(job: Job) -> int:
    return job.id
