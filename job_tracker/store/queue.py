"""The queue, and what else of all jobs is to be acted upon."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from job_tracker.domain.job import Job, JobState


@dataclass(frozen=True, slots=True)
class Tally:
    """How many jobs are in a state, and how many instances they have together."""

    jobs: int = 0
    instances: int = 0


class QueueView(Protocol):
    """Shows which jobs wait, which are live, which are due, and how many there are."""

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

    async def next_due(self, limit: int) -> Sequence[tuple[int, datetime]]:
        """At most `limit` jobs that are to be looked at on time, by id, and when; the earliest first."""
        ...
