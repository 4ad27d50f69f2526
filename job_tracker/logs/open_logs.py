"""Limits on the logs that clients read at the same time: in total, for one caller, and for one job.

To read the log of a running rank, the service needs a connection to the engine (with the process backend, an
open file). The service also uses such connections to save the logs of stopped groups and to follow reports.
To read a stored log, the service needs an open file, and about 0.2 MB of memory to decompress the log.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import LimitExceeded


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """The largest numbers of open logs. Each rank that is read counts as one log."""

    in_all: int = 768
    for_caller: int = 256
    of_job: int = 256


OF_LIVE = LogBounds()
OF_ENDED = LogBounds(in_all=512, for_caller=384, of_job=512)


class OpenLogs:
    """Counts open logs and enforces the limits."""

    def __init__(self, kind: str, bounds: LogBounds) -> None:
        """`kind` names the jobs in messages, such as "running"."""
        self._kind = kind
        self._bounds = bounds
        self._open: Counter[Hashable] = Counter()  # by caller, by job id, and in total (None)

    @contextmanager
    def one(self, caller: Caller, job_id: int) -> Iterator[None]:
        """Within this context, count one more log as open. Raises LimitExceeded if a limit is reached."""
        limits: dict[Hashable, tuple[int, str]] = {
            caller.key: (self._bounds.for_caller, f"from {caller.key or 'here'}"),
            job_id: (self._bounds.of_job, f"of job {job_id}"),
            None: (self._bounds.in_all, "in all"),
        }
        for key, (most, what) in limits.items():
            if self._open[key] >= most:
                raise LimitExceeded(
                    f"{most} logs of {self._kind} jobs are being read {what}, which is the limit (with "
                    "all_ranks, each rank counts). End some of these calls, read single ranks, or try "
                    "again later",
                    limit="logs",
                )
        self._open.update(list(limits))
        try:
            yield
        finally:
            self._open.subtract(list(limits))
            for key in limits:
                if not self._open[key]:
                    del self._open[key]
