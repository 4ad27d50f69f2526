"""The lease of a store that only one process uses."""

import uuid
from datetime import timedelta

from job_tracker.common.clock import boot_seconds
from job_tracker.domain.errors import LeadershipLost
from job_tracker.store.lease import Term


class Lease:
    """A lease in memory: only this process uses the file, so all earlier leaders have ended.

    Therefore, a service that starts again leads at once. Only the writer's thread uses the lease. So between
    a check of the lease and the write that depends on the check, there is no other write.
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
        """End the term, and return whether it was the latest term."""
        if term != self._term:
            return False
        self._term = None
        return True

    def check(self, term: Term | None) -> None:
        """Raise LeadershipLost if the term is not the latest one, or was resigned. None is accepted."""
        if term is not None and term != self._term:
            raise LeadershipLost(f"term {term.number} is over")
