"""Jobs as they are kept: submitted, read, replaced, listed and forgotten."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from job_tracker.common.broadcast import Subscription
from job_tracker.domain.job import Job, JobSpec, JobState
from job_tracker.store.lease import Term

Changes = Subscription[int, JobState]
"""Ids of jobs whose record has changed, with the state that they are in."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """What makes a submission repeatable: the client's key, and a digest of what was asked with it."""

    key: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; an empty value does not restrict."""

    states: frozenset[JobState] = frozenset()
    name_prefix: str = ""
    algorithm: str = ""


LARGEST_LIST = 2 << 20
"""Bytes of jobs as they are stored, after which a list is cut. As objects they take up to 20 times that."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Some jobs, newest first, and whether there are more below the last of them."""

    jobs: Sequence[Job]
    has_more: bool


class JobReader(Protocol):
    """Reads single jobs, and says when they change."""

    async def get(self, job_id: int) -> Job:
        """The job as it is now. Raises JobNotFound."""
        ...

    def changes(self, job_id: int | None = None) -> AbstractContextManager[Changes]:
        """Ids of jobs whose record changes from now on, with the state they are in; of one, or of all.

        A hint to read again, not a log: several changes of a job may arrive as one.
        """
        ...


class JobStore(JobReader, Protocol):
    """Keeps jobs."""

    async def submit(
        self, spec: JobSpec, at: datetime, request_key: RequestKey | None, max_queued: int
    ) -> Job:
        """A new queued job; or the one that was submitted with this key and digest before.

        Ids start at 1, grow, and are never used again. Raises RequestKeyConflict if the key was used
        with another digest, and LimitExceeded if `max_queued` jobs are queued.
        """
        ...

    async def find_submitted(self, request_key: RequestKey) -> Job | None:
        """The job that was submitted with this key. Raises RequestKeyConflict as `submit` does."""
        ...

    async def update(self, job: Job, *, term: Term | None = None, by: Changes | None = None) -> Job:
        """Replace the job if it is still at `job.version`, and return it at the next version.

        Raises StaleJob if it is not, JobNotFound, and IllegalMove for a move that TRANSITIONS lacks.
        Its progress is left alone, but for that of an earlier attempt, which is forgotten.
        If this returns, `by` has no hint of it: those are the changes that the writer itself follows.
        """
        ...

    async def list_jobs(self, where: JobFilter, *, limit: int, before: int | None = None) -> Listing:
        """At most `limit` jobs with ids below `before`; fewer if those have LARGEST_LIST bytes, but one."""
        ...

    async def finished_before(self, moment: datetime, limit: int) -> Sequence[Job]:
        """At most `limit` jobs that ended before `moment`, the oldest end first."""
        ...

    async def delete(self, job_ids: Sequence[int], *, term: Term | None = None) -> None:
        """Forget ended jobs; others, and unknown ones, are left as they are."""
        ...

    async def skip_ids(self, *, beyond: int, number: int) -> int:
        """Leave out the `number` ids that follow `beyond` or the last one given, the higher of both.

        Returns the last one that is left out: jobs that are submitted from now on have ids above it.
        """
        ...
