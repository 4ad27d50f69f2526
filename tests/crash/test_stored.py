"""The checks of the audit after a fault find missing, repeated and wrong events."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.declaration import Declaration, Kind
from job_tracker.domain.job import Ending, JobState
from job_tracker.store.base import Store
from job_tracker.store.redis import Address, RedisStore
from job_tracker.store.sqlite import SqliteStore
from tests.crash.stored import LEASE_LEFT, problems_in_redis, problems_in_sqlite
from tests.support.jobs import NOON, spec
from tests.support.redis_server import ANSWER_SECONDS, server_or_skip

SUBMIT = AuditEvent(at=NOON, action="submit", outcome=Outcome.DONE)
CANCEL = AuditEvent(at=NOON, action="cancel", outcome=Outcome.DONE, target="job 1")
DELETE = AuditEvent(at=NOON, action="delete", outcome=Outcome.DONE, target="job 1")


async def cancelled(
    store: Store, submission: AuditEvent | None = SUBMIT, cancellation: AuditEvent | None = CANCEL
) -> None:
    job = await store.submit(spec(), NOON, None, 9, event=submission)
    ending = Ending(JobState.CANCELLED, NOON, at_once=True)
    await store.update(job.ended(ending, NOON), event=cancellation)


async def whole(store: Store) -> None:
    await cancelled(store)


async def without_submission(store: Store) -> None:
    await cancelled(store, submission=None)


async def without_cancellation(store: Store) -> None:
    await cancelled(store, cancellation=None)


async def doubled(store: Store) -> None:
    await cancelled(store)
    await store.add_events([CANCEL])


async def of_another_job(store: Store) -> None:
    await cancelled(store)
    await store.add_events([AuditEvent(at=NOON, action="submit", outcome=Outcome.DONE, target="job 7")])


async def deleted(store: Store) -> None:
    await cancelled(store)
    await store.delete([1], event=DELETE)


async def deleted_twice(store: Store) -> None:
    await deleted(store)
    await store.add_events([DELETE])


async def deleted_in_words_only(store: Store) -> None:
    await cancelled(store)
    await store.add_events([DELETE])


async def deleted_silently(store: Store) -> None:
    await cancelled(store)
    await store.delete([1])


async def declared_without_event(store: Store) -> None:
    await cancelled(store)
    dataset = Declaration(kind=Kind.DATASET, name="own", definition="{}", changed_at=NOON)
    assert await store.put_declaration(dataset, 0)


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        (whole, []),
        (without_submission, ["the submission of job 1 has 0 audit events"]),
        (without_cancellation, ["job 1 is cancelled, and its cancellation has 0 audit events"]),
        (doubled, ["job 1 is cancelled, and its cancellation has 2 audit events"]),
        (deleted, []),
        (deleted_twice, ["job 1 has 2 audit events of its deletion, and is not there"]),
        (deleted_in_words_only, ["job 1 has 1 audit events of its deletion, and is still there"]),
        (deleted_silently, ["the audit has submissions of unknown jobs: {'job 1'}"]),
        (declared_without_event, ["the declaration of dataset own has 0 audit events"]),
        (of_another_job, ["the audit has submissions of unknown jobs: {'job 7'}"]),
    ],
)
def test_a_change_without_its_event_is_a_problem(
    tmp_path: Path, kind: str, fill: Callable[[Store], Awaitable[None]], expected: list[str]
) -> None:
    async def filled(opening: Awaitable[Store]) -> None:
        store = await opening
        await fill(store)
        await store.close()

    if kind == "sqlite":
        asyncio.run(filled(SqliteStore.open(tmp_path / "jobs.db")))
        assert list(problems_in_sqlite(tmp_path / "jobs.db")) == expected
        return
    server = server_or_skip(tmp_path)
    server.start()
    try:
        asyncio.run(filled(RedisStore.open(Address(server.url, "p"), answer_seconds=ANSWER_SECONDS)))
        assert list(problems_in_redis(server, "p")) == expected
    finally:
        server.end()


def test_a_lease_is_a_problem_unless_it_expires(tmp_path: Path) -> None:
    server = server_or_skip(tmp_path)
    server.start()
    try:
        server.ask("HSET", "{p}:leader", "holder", "host/1")
        assert list(problems_in_redis(server, "p")) == [LEASE_LEFT]
        server.ask("PEXPIRE", "{p}:leader", "500")
        assert list(problems_in_redis(server, "p")) == []
    finally:
        server.end()
