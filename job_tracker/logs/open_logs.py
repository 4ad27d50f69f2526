"""How many logs clients read at once: in all, for one caller, and of one job.

Each of a live group costs a connection to where the group runs, for as long as it is read. The service needs
some of these itself: to keep what a group printed that is stopped, and to follow reports. Each that is kept
in storage costs a file and some 0.2 MB, to decompress it.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import LimitExceeded


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """How many logs may be open; each rank that is read counts as one."""

    in_all: int = 768
    for_caller: int = 256
    of_job: int = 256


OF_LIVE = LogBounds()
OF_ENDED = LogBounds(in_all=512, for_caller=384, of_job=512)


class OpenLogs:
    """Counts the logs that are open, and refuses what would be too many."""

    def __init__(self, kind: str, bounds: LogBounds) -> None:
        """`kind` says for people which jobs these logs are of, as in "running"."""
        self._kind = kind
        self._bounds = bounds
        self._open: Counter[Hashable] = Counter()  # by caller, by job, and of each in all

    @contextmanager
    def one(self, caller: Caller, job_id: int) -> Iterator[None]:
        """Have a log of the job open. Raises LimitExceeded."""
        limits: dict[Hashable, tuple[int, str]] = {
            caller.key: (self._bounds.for_caller, f"from {caller.key or 'here'}"),
            job_id: (self._bounds.of_job, f"of job {job_id}"),
            None: (self._bounds.in_all, "in all"),
        }
        for key, (most, what) in limits.items():
            if self._open[key] >= most:
                raise LimitExceeded(
                    f"{most} logs of {self._kind} jobs are being read {what}, and no more may be at once; "
                    "each rank of all_ranks counts: end some of them, ask for single ranks, or try later"
                )
        self._open.update(list(limits))
        try:
            yield
        finally:
            self._open.subtract(list(limits))
            for key in limits:
                if not self._open[key]:
                    del self._open[key]
