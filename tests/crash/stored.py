"""Checks of a store after all jobs have ended."""

import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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
        states = {str(job_id): state for job_id, state in db.execute("SELECT id, state FROM jobs")}
        declared = [f"{kind} {name}" for kind, name in db.execute("SELECT kind, name FROM declarations")]
        yield from _problems_in_audit(states, db.execute("SELECT action, target FROM audit"), declared)
    finally:
        db.close()


def _problems_in_audit(
    states: Mapping[str, str], events: Iterable[tuple[str, str]], declared: Iterable[str]
) -> Iterator[str]:
    """Yield changes without their audit event, or with several.

    `states` has the states of the jobs by id, and `declared` the algorithms and datasets, which were each
    changed once.
    """
    counts = Counter(events)
    for target in declared:
        if (number := counts[f"set_{target.partition(' ')[0]}", target]) != 1:
            yield f"the declaration of {target} has {number} audit events"
    for job_id, state in states.items():
        if (number := counts["submit", f"job {job_id}"]) != 1:
            yield f"the submission of job {job_id} has {number} audit events"
        number = counts["cancel", f"job {job_id}"]
        if number > 1 or (state == "cancelled" and not number):
            yield f"job {job_id} is {state}, and its cancellation has {number} audit events"
    present = {f"job {job_id}" for job_id in states}
    deletions = {target: number for (action, target), number in counts.items() if action == "delete"}
    for target, number in deletions.items():
        if number != 1 or target in present:
            is_there = "still" if target in present else "not"
            yield f"{target} has {number} audit events of its deletion, and is {is_there} there"
    if unknown := {target for action, target in counts if action == "submit"} - present - deletions.keys():
        yield f"the audit has submissions of unknown jobs: {unknown}"


LEASE_LEFT = "the lease does not expire"
_MARGIN_SECONDS = 0.1


def problems_in_redis(redis: RedisServer, prefix: str) -> Iterator[str]:
    """Yield the problems of the store below that prefix. No service may use it."""

    def ask(command: str, key: str, *arguments: str) -> Any:
        return redis.ask(command, f"{{{prefix}}}:{key}", *arguments)

    for state in ("queued", "launching", "running", "backoff"):
        if left := ask("ZRANGE", state, "0", "-1"):
            yield f"the store has jobs that are {state}: {left}"
    # A service that is killed while it ends, or whose last calls get no answer in time, leaves a lease, which
    # expires. That a service gives up its lease is shown by tests/unit/tracking/test_leadership.py.
    left = ask("PTTL", "leader")  # milliseconds; negative if there is no lease, or if it never expires
    if left >= 0:
        time.sleep(left / 1000 + _MARGIN_SECONDS)
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
    events = [fields for _, fields in ask("XRANGE", "audit", "-", "+")]
    states = {job["id"]: job["state"] for job in jobs}
    declared = [field.partition("/")[2].replace("/", " ") for field in ask("HKEYS", "declarations")]
    yield from _problems_in_audit(states, ((event["action"], event["target"]) for event in events), declared)
