"""The queue, live jobs, due jobs and numbers of jobs in SQLite."""

import sqlite3
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from job_tracker.domain.job import LIVE_STATES, Job, JobState
from job_tracker.store.queue import Tally
from job_tracker.store.sqlite import rows

_READ_AT_ONCE: Final = 32
"""The largest number of queued jobs that are read on the event loop. More jobs are read in a thread."""
_MAX_KNOWN: Final = 4096
"""The largest number of queue positions in the cache."""


class _Read(Protocol):
    """Reads rows in a thread."""

    def __call__(
        self, parse: Callable[[list[sqlite3.Row]], list[Job]], query: str, *values: Any
    ) -> Awaitable[list[Job]]: ...


class SqliteQueue:
    """The part of a store that reads the queue; see QueueView."""

    def __init__(self, read_all: Callable[..., list[sqlite3.Row]], read: _Read) -> None:
        """`read_all` reads rows on the event loop, `read` in a thread."""
        self.__read_all = read_all
        self.__read = read
        self.__positions: dict[int, int] = {}

    def _forget_positions(self) -> None:
        """Forget the cached positions, since a job has changed."""
        self.__positions.clear()

    async def first_queued(self, limit: int, after: int = 0) -> Sequence[Job]:
        query = "SELECT * FROM jobs WHERE state = 'queued' AND id > ? ORDER BY id LIMIT ?"
        if limit > _READ_AT_ONCE:
            return await self.__read(_jobs_of, query, after, limit)
        return _jobs_of(self.__read_all(query, after, limit))

    async def queued_by_queue(self) -> Mapping[str, int]:
        query = "SELECT queue, sum(jobs) AS jobs FROM queue_blocks GROUP BY queue"
        return {row["queue"]: row["jobs"] for row in self.__read_all(query)}

    async def queue_position(self, job: Job) -> int:
        position = self.__positions.get(job.id)
        if position is None:
            position = self.__read_position(job)
            if len(self.__positions) >= _MAX_KNOWN:
                del self.__positions[next(iter(self.__positions))]
            self.__positions[job.id] = position
        return position

    def __read_position(self, job: Job) -> int:
        [row] = self.__read_all(
            "SELECT (SELECT coalesce(sum(jobs), 0) FROM queue_blocks WHERE queue = ?2 AND block < ?1 >> 8)"
            " + (SELECT count(*) FROM jobs"
            " WHERE state = 'queued' AND queue = ?2 AND id >= (?1 >> 8) << 8 AND id < ?1)",
            *(job.id, job.spec.queue),
        )
        return int(row[0])

    async def live_jobs(self) -> Sequence[Job]:
        query = "SELECT * FROM jobs WHERE state IN (?, ?) ORDER BY id DESC"
        return await self.__read(_jobs_of, query, *LIVE_STATES)

    async def tallies(self) -> Mapping[JobState, Tally]:
        found = {
            JobState(row["state"]): Tally(row["jobs"], row["instances"])
            for row in self.__read_all("SELECT * FROM tallies")
        }
        return {state: found.get(state, Tally()) for state in JobState}

    async def tallies_of(self, projects: Collection[str]) -> Mapping[str, Mapping[JobState, int]]:
        found = {project: dict.fromkeys(JobState, 0) for project in projects}
        for project in projects:
            for row in self.__read_all("SELECT * FROM project_tallies WHERE project = ?", project):
                found[project][JobState(row["state"])] = row["jobs"]
        return found

    async def next_due(self, limit: int) -> Sequence[tuple[int, datetime]]:
        query = "SELECT id, due_at FROM jobs WHERE due_at IS NOT NULL ORDER BY due_at LIMIT ?"
        return [(row["id"], rows.moment(row["due_at"])) for row in self.__read_all(query, limit)]


def _jobs_of(found: list[sqlite3.Row]) -> list[Job]:
    return [rows.job_of(row) for row in found]
