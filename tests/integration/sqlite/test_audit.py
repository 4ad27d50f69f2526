"""A service that is killed at any statement has both a change and its audit event, or neither."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from job_tracker.domain.access import Token
from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.job import Ending, JobState
from job_tracker.store.sqlite import SqliteStore
from tests.support.jobs import NOON, spec

TOKEN = Token(id="aaaaaaaa", digest=b"d" * 32, name="ci", created_at=NOON, created_by="operator")


def event(action: str, target: str = "") -> AuditEvent:
    return AuditEvent(at=NOON, action=action, outcome=Outcome.DONE, target=target)


class Kills:
    """Copies the files of a store before each statement of its writer, as a kill would leave them."""

    def __init__(self, database: Path, folder: Path) -> None:
        self.left: list[Path] = []
        self._database = database
        self._folder = folder

    def __call__(self, statement: str) -> None:
        place = self._folder / str(len(self.left))
        place.mkdir(parents=True)
        for name in ("jobs.db", "jobs.db-wal"):
            shutil.copy(self._database.with_name(name), place)
        self.left.append(place / "jobs.db")


def found_in(database: Path) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return the changes in a file, and the audit events."""
    with closing(sqlite3.connect(database)) as db:
        changes = {("submit", f"job {job_id}") for (job_id,) in db.execute("SELECT id FROM jobs")}
        cancelled = "SELECT id FROM jobs WHERE state = 'cancelled'"
        changes |= {("cancel", f"job {job_id}") for (job_id,) in db.execute(cancelled)}
        changes |= {("create_token", token_id) for (token_id,) in db.execute("SELECT id FROM tokens")}
        revoked = "SELECT id FROM tokens WHERE revoked_at IS NOT NULL"
        changes |= {("revoke_token", token_id) for (token_id,) in db.execute(revoked)}
        return changes, set(db.execute("SELECT action, target FROM audit"))


async def test_no_kill_comes_between_a_change_and_its_event(tmp_path: Path) -> None:
    database = tmp_path / "store" / "jobs.db"
    database.parent.mkdir()
    store = await SqliteStore.open(database)
    kills = Kills(database, tmp_path / "kills")
    store._connection.set_trace_callback(kills)
    first, *_ = await asyncio.gather(
        *(store.submit(spec(), NOON, None, 100, event=event("submit")) for _ in range(3))
    )
    cancelled = first.ended(Ending(JobState.CANCELLED, NOON, at_once=True), NOON)
    await store.update(cancelled, event=event("cancel", f"job {first.id}"))
    await store.add_token(TOKEN, purge_before=NOON, event=event("create_token", TOKEN.id))
    await store.revoke_token(TOKEN.id, NOON, event=event("revoke_token", TOKEN.id))
    store._connection.set_trace_callback(None)
    await store.close()

    counts = set()
    for place in [*kills.left, database]:
        changes, events = found_in(place)
        assert changes == events, place
        counts.add(len(changes))
    assert counts >= {0, 4, 5, 6}, "the copies are from before, between and after the changes"
