"""The progress of a job is visible on its master pod, with kubectl alone."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest

from job_tracker.admission.admission import Admission
from job_tracker.backends.kubernetes.backend import KubernetesBackend
from job_tracker.catalog import FixedCatalog
from job_tracker.common.clock import utc_now
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.job import JobState
from job_tracker.files.artifacts import ModelFiles
from job_tracker.jobs import Jobs
from job_tracker.logs.archive import LogArchive
from job_tracker.logs.collector import LogCollector
from job_tracker.logs.reader import LogReader
from job_tracker.reports import ReportBuffer
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.tracker import Tracker, TrackerOptions
from tests.support.backends import KubernetesGroups
from tests.support.catalog import pod_resolver
from tests.support.jobs import spec
from tests.support.leadership import elected
from tests.support.place import Place


@dataclass
class Tracked:
    """A tracker on a cluster, wired as in the composition root."""

    backend: KubernetesBackend
    jobs: Jobs

    async def reaches(self, job_id: int, state: JobState) -> None:
        async with aclosing(self.jobs.watch(BUILT_IN, job_id)) as views:
            async for view in views:
                if view.job.state is state:
                    break
            else:
                raise AssertionError(f"job {job_id} ended without reaching {state}: {view.job}")
        await self.backend.events.flush()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = await SqliteStore.open(tmp_path / "jobs.db")
    yield made
    await made.close()


@pytest.fixture
async def tracked(world: KubernetesGroups, store: SqliteStore, tmp_path: Path) -> AsyncIterator[Tracked]:
    backend = world.open()
    options = TrackerOptions(capacity=4)
    reports, tenure = ReportBuffer(store, utc_now), await elected(store)
    archive = LogArchive(str(tmp_path / "storage" / "logs"))
    logs = LogCollector(store, world.spool(), archive)
    tracker = Tracker(store, backend, logs, options, tenure, reports, on_save=backend.events.job_saved)
    tracking = asyncio.create_task(tracker.run())
    admission = Admission(
        FixedCatalog({}), pod_resolver({}), capacity=4, max_processes=4, models_uri="", checkpoints_uri=""
    )
    yield Tracked(
        backend, Jobs(store, LogReader(store, backend, archive), admission, ModelFiles(""), max_queued=10)
    )
    tracking.cancel()
    await asyncio.gather(tracking, return_exceptions=True)
    await logs.close()


async def test_changes_are_described_on_the_pod_and_remain_after_it(
    place: Place, tracked: Tracked, store: SqliteStore
) -> None:
    submitted = await store.submit(spec({"RUN_SECONDS": "forever"}, instances=2), utc_now(), None, 10)
    await tracked.reaches(submitted.id, JobState.RUNNING)
    described = await asyncio.to_thread(place.kubectl, "describe", "pod", "program-1-master")
    for reason, message in (("Launching", "Launching 2 instances"), ("Running", "The master is running")):
        (line,) = [line for line in described.splitlines() if f" {reason} " in line]
        assert "training-service" in line
        assert message in line

    await tracked.jobs.cancel(BUILT_IN, submitted.id)
    await tracked.reaches(submitted.id, JobState.CANCELLED)
    listed = await asyncio.to_thread(
        place.kubectl, "get", "events", "-l", "training-service/job-id=1", "-o", "json"
    )
    events = json.loads(listed)["items"]
    assert sorted(event["reason"] for event in events) == ["Cancelled", "Launching", "Running"]
    assert len({event["involvedObject"]["uid"] for event in events}) == 1
