"""Finds queues with jobs that have not ended. Such a queue cannot be removed."""

from collections.abc import Collection
from typing import Protocol

from job_tracker.domain.job import JobState
from job_tracker.store.jobs import JobFilter, Listing

_UNFINISHED = frozenset(state for state in JobState if not state.is_terminal)
_PAGE = 500


class JobList(Protocol):
    """Lists jobs."""

    async def list_jobs(self, where: JobFilter, *, limit: int, before: int | None = None) -> Listing:
        """See JobStore."""
        ...


class Occupied:
    """Finds which of the given queues have jobs that have not ended.

    The cost grows with the number of all jobs that have not ended.
    """

    def __init__(self, store: JobList) -> None:
        self._store = store

    async def __call__(self, names: Collection[str]) -> frozenset[str]:
        """Return the queues in `names` that have unfinished jobs. Raises StoreUnavailable."""
        wanted, found, before = frozenset(names), set[str](), None
        while wanted - found:
            page = await self._store.list_jobs(JobFilter(states=_UNFINISHED), limit=_PAGE, before=before)
            found |= {job.spec.queue for job in page.jobs} & wanted
            if not page.has_more:
                break
            before = page.jobs[-1].id
        return frozenset(found)
