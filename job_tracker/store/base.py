"""The protocol of a store: the only place where a job's state is, and the only one that is durable."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from job_tracker.domain.job import Job, JobSpec, JobState
from job_tracker.domain.telemetry import Artifact, AttemptReport, MetricSeries


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


@dataclass(frozen=True, slots=True)
class Tally:
    """How many jobs are in a state, and how many instances they have together."""

    jobs: int = 0
    instances: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """A time during which one replica leads. Its number is for people; its token is nobody else's."""

    number: int
    token: str


class JobStore(Protocol):
    """Keeps jobs. One contract suite (tests/contract) says in detail what each method owes.

    Every write is atomic and durable when it returns. Any call may raise StoreUnavailable. A write that
    is given a term raises LeadershipLost, having changed nothing, unless that is the last term that was won.
    """

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

    async def get(self, job_id: int) -> Job:
        """The job as it is now. Raises JobNotFound."""
        ...

    async def update(self, job: Job, *, term: Term | None = None) -> Job:
        """Replace the job if it is still at `job.version`, and return it at the next version.

        Raises StaleJob if it is not, JobNotFound, and IllegalMove for a move that TRANSITIONS lacks.
        Its progress is left alone, but for that of an earlier attempt, which is forgotten.
        """
        ...

    async def record_reports(self, reports: Sequence[AttemptReport]) -> Sequence[bool]:
        """Keep what attempts have reported. Says of each whether it was: it is not if the attempt is not
        the job's current one, or had ended before the report came.

        The last progress replaces the one before; points are added to their series (at most MOST_SERIES,
        thinned beyond MOST_POINTS); an artifact replaces one of its name. Need not be durable.
        """
        ...

    async def metrics(self, job_id: int) -> Sequence[MetricSeries]:
        """The series of a job, by name."""
        ...

    async def artifacts(self, job_id: int) -> Sequence[Artifact]:
        """What a job has made, by name."""
        ...

    async def store_id(self) -> str:
        """8 lower-case hex digits, made with the store and always the same: they tell it from others."""
        ...

    async def secret(self) -> bytes:
        """32 random bytes, made with the store and always the same."""
        ...

    async def skip_ids(self, *, beyond: int, number: int) -> int:
        """Leave out the `number` ids that follow `beyond` or the last one given, the higher of both.

        Returns the last one that is left out: jobs that are submitted from now on have ids above it.
        """
        ...

    async def first_queued(self, limit: int) -> Sequence[Job]:
        """The queued jobs that were submitted first, in that order, at most `limit`."""
        ...

    async def queue_position(self, job: Job) -> int:
        """How many queued jobs were submitted before this one. Its cost hardly grows with the queue."""
        ...

    async def live_jobs(self) -> Sequence[Job]:
        """The jobs that are launching or running."""
        ...

    async def tallies(self) -> Mapping[JobState, Tally]:
        """Counts of every state, at a cost that does not grow with the jobs."""
        ...

    async def list_jobs(self, where: JobFilter, *, limit: int, before: int | None = None) -> Listing:
        """At most `limit` jobs with ids below `before`; fewer if those have LARGEST_LIST bytes, but one."""
        ...

    async def next_due(self, limit: int) -> Sequence[tuple[int, datetime]]:
        """At most `limit` jobs that are to be looked at on time, by id, and when; the earliest first."""
        ...

    async def finished_before(self, moment: datetime, limit: int) -> Sequence[Job]:
        """At most `limit` jobs that ended before `moment`, the oldest end first."""
        ...

    async def delete(self, job_ids: Sequence[int], *, term: Term | None = None) -> None:
        """Forget ended jobs; others, and unknown ones, are left as they are."""
        ...

    def changes(
        self, job_id: int | None = None
    ) -> AbstractContextManager[AsyncIterator[tuple[int, JobState]]]:
        """Ids of jobs whose record changes from now on, with the state they are in; of one, or of all.

        A hint to read again, not a log: several changes of a job may arrive as one.
        """
        ...

    async def lead(self, holder: str, lifetime: timedelta, term: Term | None = None) -> Term | None:
        """Win the lease for so long if it is free, or renew it for so long if `term` is still the last.

        Returns a term that was never won before, or `term` itself; None if another holds the lease, or
        has won it since `term`. A term that nobody has taken over may be renewed after its lease is over,
        and may write. `holder` says who leads, to people.
        """
        ...

    async def resign(self, term: Term) -> None:
        """Free the lease at once, and tell those who wait for it. Nothing if the term is not the last."""
        ...

    def resignations(self) -> AbstractContextManager[AsyncIterator[object]]:
        """Something whenever the lease may have become free before its time, from now on."""
        ...

    async def close(self) -> None:
        """Finish what is being written, and let go."""
        ...
