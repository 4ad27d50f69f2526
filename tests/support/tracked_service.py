"""A tracker on a real store and a simulated world, which can be stopped and started."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from job_tracker.admission.admission import Admission
from job_tracker.admission.queues import OneQueue
from job_tracker.backends.base import Backend
from job_tracker.backends.fake import FakeBackend, FakeWorld
from job_tracker.catalog import FixedCatalog
from job_tracker.common.clock import utc_now
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.job import Job, JobState
from job_tracker.files.artifacts import ModelFiles
from job_tracker.jobs import Jobs, JobView
from job_tracker.logs.archive import LogArchive
from job_tracker.logs.collector import LogCollector
from job_tracker.logs.reader import LogReader
from job_tracker.logs.spool import Spool
from job_tracker.reports import ReportBuffer
from job_tracker.scheduling.board import Pool
from job_tracker.scheduling.mirror import Mirror
from job_tracker.scheduling.planner import PlannerOptions, plan
from job_tracker.store.base import Store
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.tracker import Tracker, TrackerOptions
from tests.support.catalog import fake_resolver
from tests.support.jobs import spec
from tests.support.leadership import elected
from training_service.metrics.outside import observed


class Service:
    """The parts of a service that the composition root builds, without the API."""

    def __init__(self, folder: Path, backend: Backend | None = None, spool: Spool | None = None) -> None:
        self.folder = folder
        self.world = FakeWorld()
        self.overtake_limit = 0
        """The number of jobs that may overtake the first waiting job. It is 0, so that tests know which job
        is next.
        """
        self.pool: Callable[[], Pool] | None = None
        """The flavors and queues. None: one of each."""
        self.back_by = timedelta(0)
        """The time by which the tracker's clock is set back."""
        self.options: dict[str, Any] = {"capacity": 4, "stop_grace": timedelta(seconds=1)}
        self.backend = backend or FakeBackend(self.world)
        self.spool = spool or self.world
        self.delegated: int | None = None
        """The number of launched jobs of each queue that may wait in the cluster's own queue."""
        self.store_calls: Counter[str] = Counter()
        """The tracker's calls to the store."""
        self.archive = LogArchive(str(folder / "storage" / "logs"))

    async def start(self) -> None:
        self.store = await SqliteStore.open(self.folder / "jobs.db")
        admission = Admission(
            FixedCatalog({}), fake_resolver(), capacity=4, max_processes=4, models_uri="", checkpoints_uri=""
        )
        reader = LogReader(self.store, self.backend, self.archive)
        models = ModelFiles(str(self.folder / "storage"))
        planning = PlannerOptions(overtake_limit=self.overtake_limit, delegated=self.delegated)
        mirror = Mirror(self.store, lambda: OneQueue(4).tree, planning) if self.delegated else None
        self.jobs = Jobs(self.store, reader, admission, models, max_queued=1000, mirror=mirror)
        self.logs = LogCollector(self.store, self.spool, self.archive)
        self.reports = ReportBuffer(self.store, utc_now)
        options, tenure = TrackerOptions(**self.options), await elected(self.store)
        self.tracker = Tracker(
            observed(self.store, Store, lambda operation, *_: self.store_calls.update([operation])),
            self.backend,
            self.logs,
            options,
            tenure,
            self.reports,
            planner=partial(plan, options=planning),
            pool=self.pool,
            clock=lambda: utc_now() - self.back_by,
        )
        self._tasks = [asyncio.create_task(self.tracker.run()), asyncio.create_task(self.reports.run())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.jobs.mirror.close()
        await self.logs.close()
        await self.store.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def submit(
        self, parameters: dict[str, str] | None = None, instances: int = 1, **changes: Any
    ) -> Job:
        wanted = spec(parameters, instances=instances, **changes)
        return await self.store.submit(wanted, utc_now(), None, 1000)

    async def until(self, job_id: int, condition: Callable[[Job], bool]) -> Job:
        """Wait until the job meets the condition or the test times out, and return it."""
        async with aclosing(self.jobs.watch(BUILT_IN, job_id)) as views:
            async for view in views:
                if condition(view.job):
                    return view.job
        raise AssertionError(
            f"job {job_id} ended without meeting the condition: {await self.jobs.get(BUILT_IN, job_id)}"
        )

    async def reaches(self, job_id: int, state: JobState) -> Job:
        return await self.until(job_id, lambda job: job.state is state)

    async def view(self, job_id: int) -> JobView:
        return await self.jobs.get(BUILT_IN, job_id)
