"""Fills the file of a store with many jobs in one transaction.

Submitting them one by one would take minutes.
"""

import asyncio
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from job_tracker.domain.job import Job
from job_tracker.store import encoding
from job_tracker.store.sqlite import SqliteStore, rows, schema

_AT_ONCE = 1000


def write_jobs(path: Path, jobs: Iterable[Job]) -> None:
    """Write the jobs, with their ids, to a new store."""
    asyncio.run(_create(path))
    with closing(schema.connect(path)) as connection:
        connection.execute("BEGIN")
        batch = []
        statement = ""
        for job in jobs:
            values = {"id": job.id, **rows.fixed_columns(job), **rows.changing_columns(job)}
            values["progress"] = encoding.text_of(encoding.PROGRESS, job.progress) if job.progress else None
            statement = (
                statement or f"INSERT INTO jobs ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"
            )
            batch.append(tuple(values.values()))
            if len(batch) == _AT_ONCE:
                connection.executemany(statement, batch)
                batch.clear()
        connection.executemany(statement, batch)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


async def _create(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.close()
