"""The protocol for the queue, live jobs, due jobs and numbers of jobs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from job_tracker.domain.job import Job, JobState


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of jobs in a state, and the number of the instances of all these jobs."""

    jobs: int = 0
    instances: int = 0


class QueueView(Protocol):
    """Reads the queue, live jobs, due jobs and numbers of jobs."""

    async def first_queued(self, limit: int, after: int = 0) -> Sequence[Job]:
        """Return the first `limit` queued jobs with ids above `after`, in the order of submission."""
        ...

    async def queue_position(self, job: Job) -> int:
        """Return how many queued jobs of the same queue were submitted before this one.

        The cost hardly grows with the length of the queue.
        """
        ...

    async def queued_by_queue(self) -> Mapping[str, int]:
        """Return the number of queued jobs of each queue that has queued jobs."""
        ...

    async def live_jobs(self) -> Sequence[Job]:
        """Return the jobs that are launching or running."""
        ...

    async def tallies(self) -> Mapping[JobState, Tally]:
        """Return the tally of every state. The cost does not grow with the number of jobs."""
        ...

    async def tallies_of(self, projects: Collection[str]) -> Mapping[str, Mapping[JobState, int]]:
        """Return the number of jobs in every state, for each of the projects.

        The cost does not grow with the number of jobs.
        """
        ...

    async def next_due(self, limit: int) -> Sequence[tuple[int, datetime]]:
        """Return the ids and due times of at most `limit` jobs that have a `due_at`, earliest first."""
        ...
