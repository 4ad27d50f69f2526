"""Expected waits of jobs: quantiles, learned from earlier waits.

The first estimate of a wait is the work ahead of the job divided by the capacity, with medians of run times.
The real wait differs from this estimate by a factor, which depends on the cluster: run times have long tails,
and jobs overtake others. So the factors of the jobs that started last are kept, and the quantiles of these
factors are applied to the next job. Jobs that still wait count, too, since otherwise only quick jobs would
count. The factor of a job that still waits is at least the factor of its wait so far (Kaplan and Meier,
1958). Only a limited number of waiting jobs is followed. Each of them is followed until it starts, even if
many jobs are submitted later, since long waits matter most.

The expected median is the mean of two values: the estimate from the factors, and the median of the last
waits. The quantile of the factors that is used as P90 is corrected by its own success: it rises a little with
each job that waits longer than the job's P90, and falls a little with each other job that waits longer than
LEAST (adaptive conformal inference; Gibbs and Candès, 2021).
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Final

from job_tracker.scheduling.model import Promise

KEPT: Final = 500
"""The number of the latest waits that count, and the largest number of waiting jobs that are followed."""
LEAST: Final = 60.0
"""The least work ahead, in seconds, from which a wait is estimated. Less work counts as this much.

Only waits that are longer than this correct the P90.
"""
_PRIOR: Final = tuple(0.1 * step for step in range(1, 11)) * 3
"""Assumed factors, which always count in addition to the learned ones."""
_HIGH: Final = 0.9
_STEP: Final = 0.002
_SHARES: Final = (0.8, 0.99)
"""The lowest and the highest quantile of the factors that may be used as P90."""
_MOST_TEXT: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Wait:
    """The time that a job is expected to wait from now on, in seconds."""

    median: float
    high: float
    """The high estimate: nine in ten such jobs start earlier."""


@dataclass(frozen=True, slots=True)
class WaitRule:
    """The learned rule that computes waits from the work ahead."""

    median: float = 0.5
    """The median of the factors."""
    high: float = 0.9
    """The quantile of the factors that is used as P90."""
    last: float | None = None
    """The median of the last waits, in seconds; None: there are none."""

    def wait(self, seconds_ahead: float, promised: float | None = None) -> Wait:
        """Return the expected wait of a job that has `seconds_ahead` seconds of work ahead of it.

        If the job was promised a start in `promised` seconds, the wait is at most this long.
        """
        seconds = max(LEAST, seconds_ahead)
        median, high = seconds * self.median, seconds * self.high
        if self.last is not None:
            # Waits change slowly. So the mean of both estimates of the median has a smaller error than
            # either estimate.
            median = min(high, (median + self.last) / 2)
        if promised is not None:
            median, high = min(median, promised), min(high, promised)
        return Wait(median, high)


@dataclass(slots=True)
class _Followed:
    """A job that waits."""

    begin: float
    ahead: float
    high: float
    """The P90 of the job's wait, as estimated when the job began to wait."""
    is_judged: bool = False
    """Whether this job has already corrected the P90."""


class WaitTimes:
    """The factors between waits and work ahead, of the jobs that started last and of some that wait."""

    def __init__(self, kept: int = KEPT) -> None:
        """Keep at most `kept` started jobs, and as many waiting ones."""
        self._kept = kept
        self._waiting: dict[int, _Followed] = {}
        self._last: deque[tuple[float, float]] = deque(maxlen=kept)
        """The waits of the jobs that started last, and the work that was ahead of them, in seconds."""
        self._share = _HIGH

    def observe(
        self, now: float, started: Iterable[int], ahead: Mapping[int, float], promises: Mapping[int, Promise]
    ) -> dict[int, Wait]:
        """Learn from a pass, and return the expected waits of the jobs that begin to wait after it.

        `started` are the jobs that the pass has admitted. `ahead` has the seconds of work ahead of each job
        that was submitted since the last pass and was not admitted.
        """
        for job_id in started:
            self._started(job_id, now)
        for job in self._waiting.values():
            if not job.is_judged and now - job.begin > max(LEAST, job.high):
                self._judge(job, was_late=True)
        if not ahead:
            return {}
        rule, found = self.rule(now), {}
        for job_id, seconds in ahead.items():
            promise = promises.get(job_id)
            found[job_id] = rule.wait(seconds, max(0.0, promise.at - now) if promise else None)
            if job_id not in self._waiting and len(self._waiting) < self._kept:
                self._waiting[job_id] = _Followed(now, max(LEAST, seconds), found[job_id].high)
        return found

    def forget(self, job_id: int) -> None:
        """Forget a job that has ended without a start, since its wait is unknown."""
        self._waiting.pop(job_id, None)

    def shift(self, seconds: float) -> None:
        """Move the start of all waits by the amount by which the clock was set."""
        for job in self._waiting.values():
            job.begin += seconds

    def waiting(self) -> list[int]:
        """Return the ids of the waiting jobs that are followed."""
        return list(self._waiting)

    def rule(self, now: float) -> WaitRule:
        """Return the rule as learned until now. With it, the waits of many jobs can be computed cheaply."""
        factors = [(factor, True) for factor in _PRIOR]
        factors += [(waited / ahead, True) for waited, ahead in self._last]
        factors += [(max(0.0, now - job.begin) / job.ahead, False) for job in self._waiting.values()]
        median, high = _quantiles(factors, (0.5, self._share))
        last = sorted(waited for waited, _ in self._last)
        return WaitRule(median, high, last[(len(last) - 1) // 2] if last else None)

    def text(self) -> str:
        """Return the learned state as JSON, for `restore`: some 40 kB at most."""
        waiting = [[job_id, *map(_rounded, astuple(job))] for job_id, job in self._waiting.items()]
        last = [[_rounded(each) for each in job] for job in self._last]
        learned = {"share": self._share, "last": last, "waiting": waiting}
        return json.dumps(learned, separators=(",", ":"))

    def restore(self, text: str) -> bool:
        """Replace the learned state by the state in a text.

        If the text is invalid, keep the learned state and return False.
        """
        try:
            learned = json.loads(text if len(text) <= _MOST_TEXT else "")
            share = min(max(float(learned["share"]), _SHARES[0]), _SHARES[1])
            last = [(max(0.0, float(waited)), max(LEAST, float(ahead))) for waited, ahead in learned["last"]]
            waiting = {int(job_id): _followed(*job) for job_id, *job in learned["waiting"]}
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
        self._share = share
        self._last = deque(last, maxlen=self._kept)
        self._waiting = dict(list(waiting.items())[: self._kept])
        return True

    def _started(self, job_id: int, now: float) -> None:
        job = self._waiting.pop(job_id, None)
        if job is None:
            return
        waited = max(0.0, now - job.begin)
        self._last.append((waited, job.ahead))
        if not job.is_judged and waited > LEAST:
            self._judge(job, was_late=waited > job.high)

    def _judge(self, job: _Followed, *, was_late: bool) -> None:
        job.is_judged = True
        step = _STEP * (_HIGH if was_late else _HIGH - 1)
        self._share = min(max(self._share + step, _SHARES[0]), _SHARES[1])


def _followed(begin: float, ahead: float, high: float, is_judged: bool) -> _Followed:
    return _Followed(float(begin), max(LEAST, float(ahead)), float(high), bool(is_judged))


def _rounded(value: float | bool) -> float | bool:
    return value if isinstance(value, bool) else round(value, 1)


def _quantiles(factors: Sequence[tuple[float, bool]], shares: Sequence[float]) -> list[float]:
    """Return the quantiles at `shares` (sorted) by the estimate of Kaplan and Meier.

    Each factor has a flag, which is False if the factor is only a lower bound.
    """
    ordered = sorted(factors, key=lambda factor: (factor[0], not factor[1]))
    found: list[float] = []
    surviving = 1.0
    for place, (factor, is_exact) in enumerate(ordered):
        if is_exact:
            surviving *= 1 - 1 / (len(ordered) - place)
        while len(found) < len(shares) and 1 - surviving >= shares[len(found)] - 1e-12:
            found.append(factor)
    return found + [ordered[-1][0]] * (len(shares) - len(found))
