"""Checks of a store after all jobs have ended."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.redis_server import RedisServer


def problems_in_sqlite(file: Path) -> Iterator[str]:
    """Yield the problems of the store's file. No service may have it open."""
    db = sqlite3.connect(f"file:{file}?immutable=1", uri=True)
    try:
        for (problem,) in db.execute("PRAGMA integrity_check"):
            if problem != "ok":
                yield f"the store is damaged: {problem}"
        counted = "SELECT state, count(*), sum(instances) FROM jobs GROUP BY state ORDER BY state"
        kept = "SELECT * FROM tallies WHERE jobs > 0 ORDER BY state"
        if db.execute(counted).fetchall() != db.execute(kept).fetchall():
            yield "the store's tallies are not the counts of its jobs"
        if db.execute("SELECT count(*) FROM queue_blocks").fetchone() != (0,):
            yield "the store counts queued jobs, but there are none"
    finally:
        db.close()


LEASE_LEFT = "the lease still exists"


def problems_in_redis(redis: RedisServer, prefix: str) -> Iterator[str]:
    """Yield the problems of the store below that prefix. No service may use it."""

    def ask(command: str, key: str, *arguments: str) -> Any:
        return redis.ask(command, f"{{{prefix}}}:{key}", *arguments)

    for state in ("queued", "launching", "running", "backoff"):
        if left := ask("ZRANGE", state, "0", "-1"):
            yield f"the store has jobs that are {state}: {left}"
    if ask("EXISTS", "leader"):
        yield LEASE_LEFT
    jobs = [ask("HGETALL", f"job:{job_id}") for job_id in ask("ZRANGE", "jobs", "0", "-1")]
    kept = {name: int(number) for name, number in ask("HGETALL", "tallies").items() if int(number)}
    counted: dict[str, int] = {}
    for job in jobs:
        for name, number in (("jobs", 1), ("instances", int(job["instances"]))):
            counted[f"{job['state']}:{name}"] = counted.get(f"{job['state']}:{name}", 0) + number
    if kept != counted:
        yield f"the store's tallies {kept} are not the counts of its jobs {counted}"
