"""The contract of stores: the keys from which tokens of training processes are made."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.domain.report_key import MOST_KEYS, ReportKey
from job_tracker.store.base import Store
from tests.support.jobs import NOON, spec
from tests.support.stores import Reopen

LATER = NOON + timedelta(hours=1)
NEW = bytes(range(32))


async def live(store: Store) -> Job:
    """Return a job that is being launched."""
    job = await store.submit(spec(), NOON, None, 100)
    return await store.update(job.admitted(NOON))


async def end(store: Store, job: Job) -> None:
    """Let a job fail, without another attempt."""
    await store.update(job.ended(Ending(JobState.FAILED, NOON), NOON))


async def rotated(store: Store, secret: bytes = NEW) -> ReportKey:
    """Make another key."""
    made = await store.rotate_report_key(secret, NOON, "ada")
    assert made is not None
    return made


async def ids(store: Store) -> list[int]:
    """Return the ids of the keys."""
    return [key.id for key in await store.report_keys()]


async def test_the_first_key_is_made_with_the_store(store: Store, reopen: Reopen) -> None:
    [key] = before = await store.report_keys()
    assert key == ReportKey(id=1, secret=key.secret)
    assert len(key.secret) == 32
    assert before == await store.report_keys() == await (await reopen()).report_keys()
    assert key.secret.hex() not in repr(key)


async def test_a_new_key_leaves_the_one_before_to_live_attempts(store: Store, reopen: Reopen) -> None:
    await store.submit(spec(), NOON, None, 100)
    launching, running = await live(store), await live(store)
    await store.update(replace(running, state=JobState.RUNNING))
    [first] = await store.report_keys()
    made = await rotated(store)
    assert made == ReportKey(id=2, secret=NEW, made_at=NOON, made_by="ada")
    kept = replace(first, replaced_at=NOON, attempts={launching.id: 1, running.id: 1})
    assert await store.report_keys() == [kept, made] == await (await reopen()).report_keys()


async def test_a_key_that_no_live_attempt_uses_is_replaced_at_once(store: Store) -> None:
    await store.submit(spec(), NOON, None, 100)
    assert (await rotated(store)).id == 2
    assert await ids(store) == [2]
    assert (await rotated(store)).id == 3, "ids are never given again"


async def test_a_key_is_deleted_after_the_last_attempt_that_may_use_it(store: Store) -> None:
    first, second = await live(store), await live(store)
    await rotated(store)
    later = await live(store)
    await end(store, first)
    assert await store.purge_report_keys() == []
    [key, _] = await store.report_keys()
    assert key.attempts == {second.id: 1}, "attempts that have ended are forgotten"
    await end(store, second)
    assert await store.purge_report_keys() == [1]
    assert await ids(store) == [2]
    assert later.state.is_live


async def test_a_later_attempt_of_the_same_job_does_not_keep_a_key(store: Store) -> None:
    job = await live(store)
    await rotated(store)
    waiting = await store.update(replace(job, state=JobState.BACKOFF))
    queued = await store.update(replace(waiting, state=JobState.QUEUED))
    await store.update(queued.admitted(NOON))
    assert await store.purge_report_keys() == [1]


async def test_a_removed_key_stays_until_no_live_attempt_uses_it(store: Store, reopen: Reopen) -> None:
    job = await live(store)
    await rotated(store)
    removed = await store.remove_report_key(1, NOON)
    assert removed is not None
    assert (removed.removed_at, removed.attempts) == (NOON, {job.id: 1})
    assert await store.remove_report_key(1, LATER) == removed, "it may be repeated"
    store = await reopen()
    assert (await store.report_keys())[0] == removed
    await end(store, job)
    assert (await store.remove_report_key(1, LATER)) == replace(removed), "and then it is deleted"
    assert await ids(store) == [2]
    assert await store.remove_report_key(1, LATER) is None


async def test_the_current_key_and_unknown_keys_are_not_removed(store: Store) -> None:
    assert await store.remove_report_key(1, NOON) is None
    assert await store.remove_report_key(9, NOON) is None
    assert [(key.id, key.removed_at) for key in await store.report_keys()] == [(1, None)]


async def test_a_store_has_a_largest_number_of_keys(store: Store) -> None:
    job = await live(store)
    for _ in range(MOST_KEYS - 1):
        await rotated(store)
    before = await store.report_keys()
    assert await store.rotate_report_key(NEW, LATER, "ada") is None
    assert await store.report_keys() == before
    await end(store, job)
    assert (await rotated(store)).id == MOST_KEYS + 1
    assert await ids(store) == [MOST_KEYS + 1]


async def test_keys_that_are_made_at_the_same_time_have_different_ids(store: Store) -> None:
    await live(store)
    made = await asyncio.gather(*(rotated(store) for _ in range(5)))
    assert sorted(key.id for key in made) == [2, 3, 4, 5, 6]
    assert [key.replaced_at for key in await store.report_keys()] == [*[NOON] * 5, None]


async def test_each_change_of_keys_changes_the_version(store: Store) -> None:
    versions = [await store.access_version()]

    async def note() -> None:
        versions.append(await store.access_version())

    job = await live(store)
    await rotated(store)
    await note()
    await store.remove_report_key(1, NOON)
    await note()
    assert await store.purge_report_keys() == []
    assert await store.access_version() == versions[-1], "nothing has changed"
    await end(store, job)
    await store.purge_report_keys()
    await note()
    assert len(set(versions)) == 4
