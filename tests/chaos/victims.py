"""Faults of ranks and supervisors, and the attempts that they may have harmed."""

import random
import signal
import threading
import time
from collections.abc import Sequence

from tests.chaos import processes
from tests.chaos.faults import Fault
from tests.chaos.processes import Found, Held

_LONGEST_FREEZE = 2.0


class Victims:
    """The ranks of a run, as targets of faults."""

    def __init__(self, run: str, *, have_supervisors: bool) -> None:
        self.attempts: set[tuple[int, int]] = set()
        """Job and attempt of ranks that were killed, or may have been."""
        self.unsupervised: set[tuple[int, int]] = set()
        """The attempts with a killed supervisor. Their hidden processes cannot be found."""
        self.deleted: set[tuple[int, int]] = set()
        """The attempts with a deleted pod, whose output may be lost."""
        self.forced: set[tuple[int, int]] = set()
        """The attempts with a pod deleted by force: the cluster reports it as gone while it still runs."""
        self._run = run
        self._have_supervisors = have_supervisors
        self._lock = threading.Lock()

    def faults(self) -> Sequence[Fault]:
        """Return all faults."""
        of_ranks = (
            Fault("kill a rank", lambda dice: self._kill(dice, supervisor=False), 3),
            Fault("freeze a rank", lambda dice: self._freeze(dice, supervisor=False), 2),
        )
        of_supervisors = (
            Fault("kill a supervisor", lambda dice: self._kill(dice, supervisor=True), 3),
            Fault("freeze a supervisor", lambda dice: self._freeze(dice, supervisor=True), 2),
        )
        return of_ranks + (of_supervisors if self._have_supervisors else ())

    def count(self, job: int, attempt: int) -> None:
        """Record that this attempt will be harmed."""
        with self._lock:
            self.attempts.add((job, attempt))

    def _kill(self, dice: random.Random, *, supervisor: bool) -> bool:
        return self._send(dice, supervisor, signal.SIGKILL)

    def _freeze(self, dice: random.Random, *, supervisor: bool) -> bool:
        return self._send(dice, supervisor, signal.SIGSTOP, dice.uniform(0.2, _LONGEST_FREEZE))

    def _send(self, dice: random.Random, supervisor: bool, number: int, seconds: float = 0) -> bool:
        found = self._draw(dice)
        if found is None:
            return False
        pid = found.parent if supervisor else found.pid
        try:
            with Held(pid) as process:
                if not self._is_still(found):
                    return False
                if number == signal.SIGKILL:
                    self.count(found.job, found.attempt)
                    if supervisor:
                        self.unsupervised.add((found.job, found.attempt))
                process.send(number)
                if seconds:
                    time.sleep(seconds)
                    process.send(signal.SIGCONT)
        except ProcessLookupError:
            return False
        return True

    def _draw(self, dice: random.Random) -> Found | None:
        # A process that a hostile job left behind does not have a supervisor as its parent.
        found = sorted(processes.marked(self._run), key=lambda each: each.pid)
        if self._have_supervisors:
            found = [each for each in found if processes.is_supervisor(each.parent)]
        return dice.choice(found) if found else None

    def _is_still(self, found: Found) -> bool:
        """Return whether the process still has that parent. The pidfd keeps its pid from being reused."""
        return processes.parent_of(found.pid) == found.parent
