"""Jobs of the previous version and their groups, with a service of this version."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from job_tracker.admission.resolution import Resolver
from job_tracker.backends.process.backend import ProcessBackend
from job_tracker.backends.process.plugin import ProcessPlugin
from job_tracker.backends.process.settings import ProcessSettings
from job_tracker.catalog import FixedCatalog
from job_tracker.common.clock import utc_now
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job, JobState
from job_tracker.reports import ReportBuffer
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.tracker import Tracker, TrackerOptions
from tests.support.backends import PATH, ProcessGroups, groups_of, started
from tests.support.leadership import elected
from tests.support.logs import collector

BEFORE = Path(__file__).with_name("data") / "sqlite-3.sql"
RUNNING, LAUNCHING, QUEUED = 3, 4, 5
# Without these modules, torchrun would start each process, and torchrun takes seconds to import.
_PLAIN = {'"nproc_per_node":2': '"nproc_per_node":1', '{"min_instances":2,"max_restarts":10}': "null"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ProcessGroups]:
    """Return processes that record their start, and end once the file `go` exists."""
    made = ProcessGroups(tmp_path / "groups")
    begun, go = tmp_path / "begun", tmp_path / "go"
    made.add(
        "program", "sh", "-c", f'echo "$JOB_ID $RANK" >>{begun}; while [ ! -e {go} ]; do sleep 0.05; done'
    )
    yield made
    await made.end()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Return a store of the previous version: one job runs, one is being launched, and one waits."""
    path = tmp_path / "jobs.db"
    text = BEFORE.read_text()
    for old, new in _PLAIN.items():
        assert old in text
        text = text.replace(old, new)
    with sqlite3.connect(path) as connection:
        connection.executescript(text)
    connection.close()
    made = await SqliteStore.open(path)
    yield made
    await made.close()


async def test_live_groups_are_adopted_and_finished_and_queued_jobs_run(
    world: ProcessGroups, store: SqliteStore, tmp_path: Path
) -> None:
    earlier = world.open()
    await started(earlier, await store.get(RUNNING))
    await started(earlier, await store.get(LAUNCHING))  # the service was killed before it recorded this
    await earlier.close()

    backend = ProcessBackend(world.root, ProcessSettings(path=PATH))
    logs = collector(store, world.spool(), tmp_path)
    resolver = Resolver(FixedCatalog(world.algorithms), "process", ProcessPlugin(ProcessSettings()))
    tracker = Tracker(
        store,
        backend,
        logs,
        TrackerOptions(capacity=8),
        await elected(store),
        ReportBuffer(store, utc_now),
        resolve=resolver.completed,
    )
    tracking = asyncio.create_task(tracker.run())
    try:
        with store.changes() as changes:
            for job_id in (RUNNING, LAUNCHING, QUEUED):
                while not _runs(job := await store.get(job_id)):
                    await anext(changes)
                assert job.attempt == 1
            (tmp_path / "go").touch()
            for job_id in (RUNNING, LAUNCHING, QUEUED):
                while not (job := await store.get(job_id)).state.is_terminal:
                    await anext(changes)
                assert (job.state, job.attempt) == (JobState.SUCCEEDED, 1), job.diagnosis
    finally:
        tracking.cancel()
        await asyncio.gather(tracking, return_exceptions=True)
        await logs.close()
        assert not await groups_of(backend)
        await backend.close()
    # No process began a second time.
    began = Counter((tmp_path / "begun").read_text().splitlines())
    assert began == {"3 0": 1, "3 1": 1, "3 2": 1, "4 0": 1, "5 0": 1}


def _runs(job: Job) -> bool:
    return job.state is JobState.RUNNING and all(rank.phase is Phase.RUNNING for rank in job.ranks)
