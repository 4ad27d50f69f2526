"""The embedded store: one SQLite file, owned by one service."""

from job_tracker.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
