"""The contract of stores: audit events, alone and with the changes that they record."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from job_tracker.domain.access import Project, Token
from job_tracker.domain.audit import AuditEvent, Outcome, first_id_at
from job_tracker.domain.errors import (
    IllegalMove,
    LeadershipLost,
    QueueFull,
    RequestKeyConflict,
    StaleJob,
    TrackerError,
)
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.store.audit import AuditFilter
from job_tracker.store.base import Store
from job_tracker.store.jobs import RequestKey
from job_tracker.store.lease import Term
from tests.support.jobs import NOON, spec
from tests.support.stores import Reopen

SECOND = timedelta(seconds=1)
ALL = AuditFilter()


def event(second: int = 0, **changes: Any) -> AuditEvent:
    given = AuditEvent(
        at=NOON + second * SECOND, action="logs", outcome=Outcome.READ, caller="ada", project="vision"
    )
    return replace(given, **changes)


async def targets(store: Store, where: AuditFilter = ALL, limit: int = 100) -> list[str]:
    return [each.target for each in await store.list_events(where, limit=limit)]


async def test_an_event_is_kept_whole(reopen: Reopen) -> None:
    whole = event(
        outcome=Outcome.DENIED,
        means="token",
        credential="aaaaaaaa",
        address="ipv4:192.0.2.1",
        target="job 7",
        detail='a "quoted"\n☃ text',
        count=3,
        request_id="r-1",
    )
    bare = AuditEvent(at=NOON, action="authenticate", outcome=Outcome.DENIED)
    await (await reopen()).add_events([whole, bare])
    second, first = await (await reopen()).list_events(ALL, limit=10)
    assert first == replace(whole, id=first_id_at(NOON))
    assert second == replace(bare, id=first_id_at(NOON) + 1)


async def test_ids_increase_even_if_the_clock_is_set_back(reopen: Reopen) -> None:
    store = await reopen()
    await store.add_events([event(10), event(5)])
    await store.add_events([event(0)])
    store = await reopen()
    await store.add_events([event(1), event(20)])
    ids = [each.id for each in await store.events_after(0, 10)]
    first = first_id_at(NOON + 10 * SECOND)
    assert ids == [first, first + 1, first + 2, first + 3, first_id_at(NOON + 20 * SECOND)]


async def test_events_are_listed_newest_first_in_pages(store: Store) -> None:
    await store.add_events([event(second, target=str(second)) for second in range(5)])
    assert await targets(store) == ["4", "3", "2", "1", "0"]
    page = await store.list_events(ALL, limit=2)
    assert [each.target for each in page] == ["4", "3"]
    rest = await store.list_events(ALL, limit=9, before=page[-1].id)
    assert [each.target for each in rest] == ["2", "1", "0"]
    assert [each.target for each in await store.events_after(page[-1].id, 9)] == ["4"]
    assert [each.target for each in await store.events_after(0, 2)] == ["0", "1"]
    assert not await store.list_events(ALL, limit=2, before=rest[-1].id)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (AuditFilter(project="vision"), "5310"),
        (AuditFilter(project="speech"), "4"),
        (AuditFilter(project="text"), ""),
        (AuditFilter(caller="ada"), "420"),
        (AuditFilter(caller="bob", project="vision"), "531"),
        (AuditFilter(caller="bob", project="speech"), ""),
        (AuditFilter(since=NOON + 4 * SECOND), "54"),
        (AuditFilter(until=NOON + 2 * SECOND), "10"),
        (AuditFilter(since=NOON + SECOND, until=NOON + 3 * SECOND), "21"),
        (AuditFilter(since=NOON + 3 * SECOND, until=NOON + SECOND), ""),
        (AuditFilter(project="vision", caller="bob", until=NOON + 5 * SECOND), "31"),
    ],
)
async def test_events_are_found_by_project_caller_and_time(
    store: Store, where: AuditFilter, expected: str
) -> None:
    projects = ["vision", "vision", "", "vision", "speech", "vision"]
    await store.add_events(
        [
            event(number, target=str(number), project=project, caller=["ada", "bob"][number % 2])
            for number, project in enumerate(projects)
        ]
    )
    assert "".join(await targets(store, where)) == expected
    assert "".join(await targets(store, where, limit=2)) == expected[:2]


async def test_one_event_among_many_others_is_found(store: Store) -> None:
    """A script of Redis reads at most 1,000 events, so several calls are needed."""
    others = [event(target="other", project="speech") for _ in range(2500)]
    for start in range(0, len(others), 500):
        await store.add_events(others[start : start + 500])
        if not start:
            await store.add_events([event(target="it")])
    assert await targets(store, AuditFilter(caller="ada", project="vision")) == ["it"]


async def test_old_events_are_deleted_in_batches(store: Store) -> None:
    await store.add_events([event(number, target=str(number), project=f"p{number}") for number in range(5)])
    horizon = NOON + 3 * SECOND
    assert await store.delete_events(horizon, 2) == 2
    assert await targets(store) == ["4", "3", "2"]
    assert await targets(store, AuditFilter(project="p0")) == []
    assert await store.delete_events(horizon, 2) == 1
    assert await store.delete_events(horizon, 2) == 0
    assert await targets(store) == ["4", "3"]
    assert await targets(store, AuditFilter(caller="ada")) == ["4", "3"]


async def test_an_id_is_not_given_again_after_all_events_were_deleted(reopen: Reopen) -> None:
    store = await reopen()
    await store.add_events([event()])
    [first] = await store.events_after(0, 9)
    assert await store.delete_events(NOON + SECOND, 9) == 1
    await store.add_events([event()])
    [second] = await store.events_after(0, 9)
    assert second.id > first.id


async def test_only_the_leader_deletes_events(store: Store) -> None:
    await store.add_events([event()])
    with pytest.raises(LeadershipLost):
        await store.delete_events(NOON + SECOND, 9, term=Term(1, "another"))
    assert await targets(store) == [""]


SUBMITTED = event(action="submit", outcome=Outcome.DONE)
KEY = RequestKey("monday", b"digest", "default")


async def submitted(store: Store, key: RequestKey | None = None, most: int = 100) -> Job:
    return await store.submit(spec(), NOON, key, most, event=SUBMITTED)


async def test_a_submission_has_one_event_about_its_job(store: Store) -> None:
    job = await submitted(store)
    [found] = await store.list_events(ALL, limit=9)
    assert found == replace(SUBMITTED, id=found.id, target=f"job {job.id}")


async def test_many_submissions_at_once_have_an_event_each(store: Store) -> None:
    jobs = await asyncio.gather(*(submitted(store) for _ in range(50)))
    assert sorted(await targets(store)) == sorted(f"job {job.id}" for job in jobs)


async def test_a_repeated_submission_has_no_second_event(store: Store) -> None:
    job = await submitted(store, KEY)
    assert await submitted(store, KEY) == job
    with pytest.raises(RequestKeyConflict):
        await submitted(store, replace(KEY, digest=b"another"))
    assert await targets(store) == [f"job {job.id}"]


async def test_a_refused_submission_has_no_event(store: Store) -> None:
    await submitted(store)
    with pytest.raises(QueueFull):
        await submitted(store, most=1)
    assert await targets(store) == ["job 1"]


async def test_an_update_has_its_event_only_if_it_is_written(store: Store) -> None:
    job = await store.submit(spec(), NOON, None, 100)
    cancelled = job.ended(Ending(JobState.CANCELLED, NOON, at_once=True), NOON)
    await store.update(cancelled, event=event(action="cancel", target="job 1"))
    with pytest.raises(StaleJob):
        await store.update(cancelled, event=event(action="cancel", target="stale"))
    with pytest.raises(IllegalMove):
        await store.update(replace(cancelled, version=2), event=event(action="cancel", target="illegal"))
    assert await targets(store) == ["job 1"]


async def test_changes_of_tokens_and_projects_have_an_event_each(store: Store) -> None:
    project = Project(name="vision")
    token = Token(id="aaaaaaaa", digest=b"d" * 32, name="ci", created_at=NOON, created_by="operator")
    changes: list[tuple[str, Callable[[AuditEvent], Awaitable[object]]]] = [
        ("put", lambda given: store.put_project(project, event=given)),
        ("add", lambda given: store.add_token(token, purge_before=NOON, event=given)),
        ("revoke", lambda given: store.revoke_token(token.id, NOON, event=given)),
        ("delete", lambda given: store.delete_project("vision", NOON, event=given)),
    ]
    for name, change in changes:
        for _ in range(2):  # the second time it changes nothing
            await change(event(target=name))
    await store.revoke_token("unknown0", NOON, event=event(target="unknown"))
    assert await targets(store) == ["delete", "revoke", "add", "put"]


async def test_changes_of_report_keys_have_an_event_each(store: Store) -> None:
    job = await store.submit(spec(), NOON, None, 100)
    await store.update(job.admitted(NOON))  # the first key stays, because this attempt may use it
    await store.rotate_report_key(b"s" * 32, NOON, "ada", event=event(action="rotate_report_key"))
    for _ in range(2):
        await store.remove_report_key(1, NOON, event=event(target="report key 1"))
    await store.remove_report_key(2, NOON, event=event(target="the current one"))
    assert await targets(store) == ["report key 1", "report key 2"]


async def test_annotations_and_deletions_have_an_event_only_if_they_change_something(store: Store) -> None:
    job = await store.submit(spec(), NOON, None, 100)
    await store.delete([job.id], event=event(target="a queued job"))
    await store.annotate(job, ("a",), "note", event=event(target="annotated"))
    with pytest.raises(StaleJob):
        await store.annotate(job, ("b",), "", event=event(target="stale"))
    await store.update(job.ended(Ending(JobState.CANCELLED, NOON, at_once=True), NOON))
    for _ in range(2):
        await store.delete([job.id], event=event(target="deleted"))
    assert await targets(store) == ["deleted", "annotated"]


async def test_a_failed_operation_leaves_no_event_for_the_next_commit(store: Store) -> None:
    outcomes = await asyncio.gather(
        submitted(store), submitted(store, most=0), submitted(store), return_exceptions=True
    )
    assert [isinstance(each, TrackerError) for each in outcomes] == [False, True, False]
    assert len(await targets(store)) == 2
