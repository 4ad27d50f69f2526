"""A store restored from a backup catches up with the existing groups of processes."""

from datetime import timedelta
from pathlib import Path

from job_tracker.domain import naming
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job, JobState
from job_tracker.store.base import Store
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.restoring import SKIPPED_IDS, Restored, catch_up
from tests.support.backends import ProcessGroups, groups_of
from tests.support.jobs import NOON, spec

LEASE = timedelta(minutes=1)
GRACE = timedelta(seconds=5)


async def submitted(store: Store) -> Job:
    return await store.submit(spec({}, home=naming.home("default", await store.store_id())), NOON, None, 100)


async def test_a_partly_stopped_group_is_stopped_and_not_adopted(
    world: ProcessGroups, tmp_path: Path
) -> None:
    world.add("program", "sleep", "1000")
    store = await SqliteStore.open(tmp_path / "jobs.db")
    stopping, running = await submitted(store), await submitted(store)
    store_id = await store.store_id()
    before = world.open(store_id=store_id)
    groups = [job.admitted(NOON).group for job in (stopping, running)]
    for job in (stopping, running):
        await before.launch(job.admitted(NOON))
    # The service is killed between the end of the processes and the removal of their folder.
    await before._groups[groups[0]].stop(0)
    await before.close()
    now = world.open(store_id=store_id)
    term = await store.lead("a test", LEASE)
    assert term is not None
    assert await catch_up(store, now, term, NOON) == Restored(
        unfinished=2, taken_up=1, repeated=0, strays=0, last_skipped_id=2 + SKIPPED_IDS
    )
    assert (await store.get(stopping.id)).state is JobState.QUEUED
    assert (await store.get(running.id)).state is JobState.LAUNCHING
    [(left, observation)] = (await groups_of(now)).items()
    assert (left, observation.master.status.phase) == (groups[1], Phase.RUNNING)
    await now.stop(groups[1], GRACE)
    await store.close()
