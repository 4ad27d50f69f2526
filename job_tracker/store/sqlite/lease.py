"""Who leads, among those who use one store."""

import uuid
from datetime import timedelta

from job_tracker.common.clock import boot_seconds
from job_tracker.domain.errors import LeadershipLost
from job_tracker.store.lease import Term


class Lease:
    """A lease in memory: the file is this process's alone, so whoever led before the process has ended.

    A service that starts again therefore leads at once. Used by the writer's thread only, so that no
    write comes between a look at the lease and what depends on it.
    """

    def __init__(self) -> None:
        self._number = 0
        self._term: Term | None = None
        self._ends_at = 0.0

    def lead(self, lifetime: timedelta, term: Term | None) -> Term | None:
        now = boot_seconds()
        if term is None and (self._term is None or self._ends_at <= now):
            self._number += 1
            term = self._term = Term(self._number, uuid.uuid4().hex)
        elif term is None or term != self._term:
            return None
        self._ends_at = now + lifetime.total_seconds()
        return term

    def resign(self, term: Term) -> bool:
        """Whether it was the last, and is over now."""
        if term != self._term:
            return False
        self._term = None
        return True

    def check(self, term: Term | None) -> None:
        """Raise LeadershipLost for a term that is not the last."""
        if term is not None and term != self._term:
            raise LeadershipLost(f"term {term.number} is over")
