"""Removes trees that have not been used for some time."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta

from job_tracker.common.backoff import Backoff
from job_tracker.common.tasks import repeat
from job_tracker.domain.errors import TrackerError
from job_tracker.domain.job import JobState
from job_tracker.store.jobs import JobFilter, JobStore
from job_tracker.trees.store import TreeStore

log = logging.getLogger(__name__)

_PERIOD_SECONDS = 3600.0
_PAGE = 1000
_NOT_ENDED = frozenset(state for state in JobState if not state.is_terminal)


class TreeSweeper:
    """Removes unused trees.

    The trees of jobs that have not ended are never removed: before each removal, they count as used again. A
    job that is submitted meanwhile has just used its tree, so this tree stays, too.
    """

    def __init__(self, jobs: JobStore, trees: TreeStore, keep: timedelta) -> None:
        """Remove trees that were not used for the time `keep`, which is an hour or more."""
        self._jobs = jobs
        self._trees = trees
        self._keep = keep.total_seconds()

    async def run(self) -> None:
        """Remove unused trees once an hour, until cancelled."""
        backoff = Backoff(first=60, longest=_PERIOD_SECONDS)
        failure = "unused trees cannot be removed"
        await repeat(self.sweep, backoff, period=_PERIOD_SECONDS, failure=failure, expected=TrackerError)

    async def sweep(self) -> None:
        """Remove the trees that were not used for the time `keep`, except those of jobs that have not ended.

        Raises StoreUnavailable and StorageUnavailable.
        """
        before = time.time() - self._keep
        projects = await asyncio.to_thread(self._trees.projects)
        aged = {
            project: await asyncio.to_thread(self._trees.of(project).unused_since, before)
            for project in projects
        }
        used = await self._used() if any(aged.values()) else {}
        for project in projects:
            trees, of_jobs = self._trees.of(project), used.get(project, set())
            await asyncio.to_thread(trees.touch, of_jobs.intersection(aged[project]))
            removed = await asyncio.to_thread(trees.remove_unused, before, of_jobs)
            if removed:
                log.info("removed %d unused trees of project %s", len(removed), project)

    async def _used(self) -> Mapping[str, set[str]]:
        """Return the trees of all jobs that have not ended, by project."""
        used = defaultdict[str, set[str]](set)
        before: int | None = None
        while True:
            page = await self._jobs.list_jobs(JobFilter(states=_NOT_ENDED), limit=_PAGE, before=before)
            for job in page.jobs:
                if (program := job.spec.program) is not None:
                    used[job.spec.project].add(program.tree)
                    if program.changes is not None:
                        used[job.spec.project].add(program.changes.tree)
            if not page.has_more:
                return used
            before = page.jobs[-1].id
