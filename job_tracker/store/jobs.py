"""The protocols for jobs: submit, read, replace, list and delete them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from job_tracker.common.broadcast import Subscription
from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.job import Job, JobSpec, JobState
from job_tracker.domain.naming import DEFAULT_PROJECT
from job_tracker.store.lease import Term

Changes = Subscription[int, JobState]
"""The ids of changed jobs, with their states."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The key of a repeatable submission, a digest of its request, and its project. Keys are per project."""

    key: str
    digest: bytes
    project: str = DEFAULT_PROJECT


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter for jobs. An empty value matches all jobs, except for `projects`."""

    states: frozenset[JobState] = frozenset()
    name_prefix: str = ""
    algorithm: str = ""
    submitted_by: str = ""
    """The name of the caller that submitted the jobs."""
    projects: frozenset[str] | None = None
    """The projects of the jobs. None: all projects. Empty: none, so no job matches."""


LARGEST_LIST = 2 << 20
"""The stored size in bytes at which a list is cut. In memory jobs take up to 20 times as much."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Some jobs, newest first, and whether more follow."""

    jobs: Sequence[Job]
    has_more: bool


class JobReader(Protocol):
    """Reads single jobs and follows their changes."""

    async def get(self, job_id: int) -> Job:
        """Return the current job. Raises JobNotFound."""
        ...

    def changes(self, job_id: int | None = None) -> AbstractContextManager[Changes]:
        """Follow the changes of one job, or of all, from now on.

        A change is a hint to read the job again. Several changes of a job may arrive as one.
        """
        ...


class JobStore(JobReader, Protocol):
    """Stores jobs."""

    async def submit(
        self,
        spec: JobSpec,
        at: datetime,
        request_key: RequestKey | None,
        max_queued: int,
        max_queued_in_project: int | None = None,
        *,
        event: AuditEvent | None = None,
    ) -> Job:
        """Queue and return a new job, or return the job that was submitted with this key and digest before.

        Ids start at 1, increase, and are never reused. Raises RequestKeyConflict if the key was used with
        another digest, and LimitExceeded if `max_queued` jobs are queued, or `max_queued_in_project` of the
        project of `spec`. A new job's `event` is stored in the same transaction, with the job as its target.
        """
        ...

    async def find_submitted(self, request_key: RequestKey) -> Job | None:
        """Return the job that was submitted with this key, if any. Raises RequestKeyConflict."""
        ...

    async def update(
        self,
        job: Job,
        *,
        term: Term | None = None,
        by: Changes | None = None,
        event: AuditEvent | None = None,
    ) -> Job:
        """Replace the job if it is still at `job.version`, and return it at the next version.

        Raises StaleJob if it is not, JobNotFound, and IllegalMove for a move that is not in TRANSITIONS. The
        stored progress stays, unless it belongs to an earlier attempt. `by` is the writer's own subscription
        to changes: a successful write is not announced there. `event` is stored in the same transaction.
        """
        ...

    async def list_jobs(self, where: JobFilter, *, limit: int, before: int | None = None) -> Listing:
        """Return at most `limit` jobs with ids below `before`, cut after LARGEST_LIST bytes."""
        ...

    async def finished_before(self, moment: datetime, limit: int) -> Sequence[Job]:
        """Return at most `limit` jobs that ended before `moment`, oldest end first."""
        ...

    async def delete(self, job_ids: Sequence[int], *, term: Term | None = None) -> None:
        """Delete ended jobs. Jobs that have not ended, and unknown ids, are ignored."""
        ...

    async def skip_ids(self, *, beyond: int, number: int) -> int:
        """Skip the `number` ids that follow `beyond` or the last id in use, whichever is higher.

        Returns the last skipped id. Jobs that are submitted from now on have higher ids.
        """
        ...
