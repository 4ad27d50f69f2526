"""The contract of stores: tags and notes, lists by tag and by time, and what remains of deleted jobs."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from job_tracker.domain.errors import JobNotFound, LeadershipLost, StaleJob
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.domain.remains import Remains
from job_tracker.store.base import Store
from job_tracker.store.jobs import CLOCK_SLACK, JobFilter
from job_tracker.store.lease import Term
from tests.support.jobs import NOON, spec
from tests.support.stores import Reopen

HOUR = timedelta(hours=1)


async def submit(store: Store, *tags: str, at: datetime = NOON, **changes: object) -> Job:
    return await store.submit(spec(**changes), at, None, 1_000_000, tags=tags)  # type: ignore[arg-type]


async def end(store: Store, job: Job) -> Job:
    return await store.update(job.ended(Ending(JobState.CANCELLED, NOON), NOON))


async def ids(store: Store, limit: int = 10, before: int | None = None, **where: object) -> list[int]:
    listing = await store.list_jobs(JobFilter(**where), limit=limit, before=before)  # type: ignore[arg-type]
    return [job.id for job in listing.jobs]


async def test_tags_and_note_are_kept_and_changed_in_every_state(store: Store, reopen: Reopen) -> None:
    job = await submit(store, "best", "team=a")
    assert (await store.get(job.id)).tags == job.tags == ("best", "team=a")
    noted = await store.annotate(job, ("team=b",), "Läuft.\nGut")
    assert (noted.tags, noted.note) == (("team=b",), "Läuft.\nGut")
    assert noted == replace(job, tags=noted.tags, note=noted.note), "the version stays: the tracker goes on"
    launching = await store.update(job.admitted(NOON))
    ended = await end(store, launching)
    assert (await store.annotate(noted, (), "")).state is JobState.CANCELLED
    again = await store.annotate(replace(ended, tags=(), note=""), ("x",), "n")
    assert await (await reopen()).get(job.id) == again


async def test_an_annotation_of_a_job_that_was_annotated_meanwhile_is_stale(store: Store) -> None:
    job = await submit(store, "a")
    await store.annotate(job, ("a", "b"), "")
    with pytest.raises(StaleJob):
        await store.annotate(job, ("a", "c"), "")
    with pytest.raises(StaleJob):
        await store.annotate(replace(job, tags=("a", "b"), note="x"), ("a",), "")
    assert (await store.get(job.id)).tags == ("a", "b")
    with pytest.raises(JobNotFound):
        await store.annotate(replace(job, id=99), (), "")


async def test_watchers_see_an_annotation(store: Store) -> None:
    job = await submit(store)
    await store.update(job.admitted(NOON))
    with store.changes(job.id) as changes:
        await store.annotate(job, ("a",), "")
        assert await anext(changes) == (job.id, JobState.LAUNCHING), "the state is the present one"


async def test_a_list_by_tags_has_the_jobs_with_all_of_them(store: Store) -> None:
    await submit(store, "a", project="vision")
    await submit(store, "a", "b", project="vision")
    third = await submit(store, "a", "ab", project="speech")
    await submit(store, project="vision")
    await submit(store, "b", project="vision")
    a, vision = frozenset({"a"}), frozenset({"vision"})
    assert await ids(store, tags=a) == [3, 2, 1]
    assert await ids(store, tags=a, projects=vision) == [2, 1]
    assert await ids(store, tags=a, projects=vision, limit=1) == [2]
    assert await ids(store, tags=a, before=3) == [2, 1]
    assert await ids(store, tags=frozenset({"a", "b"})) == [2]
    assert await ids(store, tags=a, projects=frozenset()) == []
    await end(store, third)
    assert await ids(store, tags=a, states=frozenset({JobState.CANCELLED})) == [3]
    await store.annotate(third, ("b",), "")
    assert await ids(store, tags=a) == [2, 1]
    assert await ids(store, tags=frozenset({"b"}), name_prefix="a-", algorithm="program") == [5, 3, 2]
    await store.delete([3])
    assert await ids(store, tags=frozenset({"b"})) == [5, 2]


async def test_a_list_by_time_has_the_jobs_submitted_then(store: Store) -> None:
    assert await ids(store, since=NOON, until=NOON) == []
    moments = [NOON + HOUR * n + timedelta(microseconds=n % 2) for n in range(8)]
    for at in moments:
        await submit(store, "t", at=at)
    assert await ids(store, since=moments[2], until=moments[5]) == [5, 4, 3]
    assert await ids(store, since=moments[1] + timedelta(microseconds=1), until=moments[3]) == [3]
    assert await ids(store, since=moments[6]) == [8, 7]
    assert await ids(store, since=moments[6], before=8) == [7]
    assert await ids(store, until=moments[1]) == [1]
    assert await ids(store, until=moments[5], limit=2) == [5, 4]
    assert await ids(store, since=moments[7] + HOUR * 9) == []
    tag, project = frozenset({"t"}), frozenset({"default"})
    assert await ids(store, since=moments[2], until=moments[5], tags=tag, projects=project) == [5, 4, 3]
    assert await ids(store, since=datetime.min.replace(tzinfo=UTC), limit=2) == [8, 7]
    assert await ids(store, until=datetime.max.replace(tzinfo=UTC), limit=2) == [8, 7]


async def test_a_list_by_time_bears_clocks_that_differ(store: Store) -> None:
    for back in (0, 1, 0, 1, 0):
        await submit(store, at=NOON - CLOCK_SLACK * 0.9 * back)
    assert await ids(store, since=NOON) == [5, 3, 1]
    assert await ids(store, until=NOON) == [4, 2]


async def test_what_remains_of_deleted_jobs_is_known_until_it_is_forgotten(
    store: Store, reopen: Reopen
) -> None:
    first, second, live = [await submit(store, home=f"default/1a2b3c4{n}") for n in range(3)]
    first = await end(store, await store.update(first.admitted(NOON)))
    await end(store, second)
    await store.delete([first.id, second.id, live.id, 99])
    left = [Remains(1, "program", "default/1a2b3c40", 1), Remains(2, "program", "default/1a2b3c41", 0)]
    assert left[0] == first.remains
    assert (left[0].groups, left[0].folder) == (first.groups, first.folder)
    assert await store.remains(10) == left
    assert await store.remains(1) == left[:1]
    store = await reopen()
    with pytest.raises(LeadershipLost):
        await store.forget_remains([1], term=Term(99, "of another"))
    await store.forget_remains([1])
    assert await store.remains(10) == left[1:]
    await store.forget_remains([1, 2])
    assert await store.remains(10) == []
