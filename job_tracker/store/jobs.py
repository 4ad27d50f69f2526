"""The protocols for jobs: submit, read, replace, list and delete them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from job_tracker.common.broadcast import Subscription
from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.job import Job, JobState
from job_tracker.domain.job_spec import JobSpec
from job_tracker.domain.naming import DEFAULT_PROJECT
from job_tracker.domain.remains import Remains
from job_tracker.store.lease import Term

Changes = Subscription[int, JobState]
"""A subscription that yields the ids of changed jobs, with their states."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The key of a repeatable submission, the digest of its request, and its project.

    Each project has its own keys.
    """

    key: str
    digest: bytes
    project: str = DEFAULT_PROJECT


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter for jobs. A field that has its default value matches all jobs."""

    states: frozenset[JobState] = frozenset()
    name_prefix: str = ""
    algorithm: str = ""
    submitted_by: str = ""
    """The name of the caller that submitted the jobs."""
    projects: frozenset[str] | None = None
    """The projects of the jobs. None: all projects. If it is empty, no job matches."""
    tags: frozenset[str] = frozenset()
    """The tags that each matching job must have."""
    since: datetime | None = None
    """The earliest time of submission. See CLOCK_SLACK."""
    until: datetime | None = None
    """The time before which the jobs were submitted. See CLOCK_SLACK."""


CLOCK_SLACK = timedelta(hours=1)
"""The longest time by which the submission times of jobs may be out of order.

A list by time searches for a range of ids: ids increase with each submission, and so do the times, as long as
the clocks of all replicas agree. A list finds all jobs whose times are out of order by at most this time, and
may miss jobs whose times are further out of order. Without this bound, a list by time would have to read the
times of all jobs.
"""


def moved(at: datetime | None, by: timedelta) -> datetime | None:
    """Return `at` plus `by`; None if `at` is None, or if no datetime can hold the result."""
    try:
        return None if at is None else at + by
    except OverflowError:
        return None


LARGEST_LIST = 2 << 20
"""The stored size in bytes at which a list is cut. In memory, jobs are up to 20 times as large."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A part of a list of jobs, newest first, and whether more jobs follow."""

    jobs: Sequence[Job]
    has_more: bool


class JobReader(Protocol):
    """Reads single jobs and follows their changes."""

    async def get(self, job_id: int) -> Job:
        """Return the job with this id as it is now. Raises JobNotFound."""
        ...

    def changes(self, job_id: int | None = None) -> AbstractContextManager[Changes]:
        """Follow the changes of the job with this id within the context; None: the changes of all jobs.

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
        tags: tuple[str, ...] = (),
        *,
        max_queued_of_caller: int | None = None,
        max_queued_in_queue: int | None = None,
        project_must_be_stored: bool = False,
        event: AuditEvent | None = None,
    ) -> Job:
        """Queue and return a new job, or return the job that was submitted before with this key and digest.

        Ids start at 1, increase, and are never reused. Raises RequestKeyConflict if the key was used for
        another request, which has another digest. Raises UnknownProject if `project_must_be_stored` and the
        project of `spec` is not stored.

        Raises QueueFull if one of the limits on the number of queued jobs is reached: `max_queued` is the
        limit for all jobs, and the others are for the jobs of the project, the caller and the queue. None: no
        limit. If the job is new, `event` is stored in the same transaction, with the job as its target.
        """
        ...

    async def find_submitted(self, request_key: RequestKey) -> Job | None:
        """Return the job that was submitted with this key; None if there is none.

        Raises RequestKeyConflict if the key was used for another request, which has another digest.
        """
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

        Raises JobNotFound. Raises StaleJob if the job is at another version, and IllegalMove if the job has
        ended or TRANSITIONS lacks the change of state. The stored spec, tags, note and progress stay, but a
        new attempt removes the progress of the attempt before. `by` is the writer's own subscription to
        changes: a successful write is not announced to this subscription. `event` is stored in the same
        transaction.
        """
        ...

    async def annotate(
        self, job: Job, tags: tuple[str, ...], note: str, *, event: AuditEvent | None = None
    ) -> Job:
        """Replace the tags and the note of a job, in any state, and return the job as it is now.

        Raises JobNotFound, and StaleJob if the job no longer has the tags and the note of `job`.
        """
        ...

    async def list_jobs(self, where: JobFilter, *, limit: int, before: int | None = None) -> Listing:
        """Return at most `limit` matching jobs with ids below `before`, newest first.

        The list ends early after LARGEST_LIST bytes.
        """
        ...

    async def finished_before(self, moment: datetime, limit: int) -> Sequence[Job]:
        """Return at most `limit` jobs that ended before `moment`, in the order of their ends."""
        ...

    async def delete(
        self, job_ids: Sequence[int], *, term: Term | None = None, event: AuditEvent | None = None
    ) -> None:
        """Delete ended jobs, and record their remains: the groups and logs that they leave outside the store.

        Other jobs and unknown ids are ignored. With an `event`, at most 100 ids are allowed. The event is
        stored if at least one job was deleted.
        """
        ...

    async def remains(self, limit: int) -> Sequence[Remains]:
        """Return the remains of at most `limit` deleted jobs.

        Each call returns the same jobs again, until `forget_remains` is called with their ids.
        """
        ...

    async def forget_remains(self, job_ids: Sequence[int], *, term: Term | None = None) -> None:
        """Forget the remains of these deleted jobs. Call this once their groups and logs are removed."""
        ...

    async def skip_ids(self, *, beyond: int, number: int) -> int:
        """Skip the `number` ids that follow `beyond` or the last id that was given, whichever is higher.

        Returns the last skipped id. Jobs that are submitted from now on have higher ids.
        """
        ...
