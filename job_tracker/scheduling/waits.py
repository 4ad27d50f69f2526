"""When a waiting job will start: quantiles of its wait, learned from how earlier waits turned out.

The wait is first taken to be the work ahead of the job over the capacity, with medians of run times. That is
wrong by a factor, which differs from cluster to cluster: run times have long tails, and jobs overtake. So the
factors of the last jobs are kept, and their quantiles are applied to the next one. A job that still waits
counts, too: its factor is larger than what it has waited so far (Kaplan and Meier, 1958). Otherwise only the
quick ones would count. The median is half way to that of the last waits.

The share of the factors that the P90 stands for follows its own success: it rises a little with each job that
waits longer than its P90, and falls a little with each that does not (adaptive conformal inference; Gibbs and
Candès, 2021).
"""

import json
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Final

from job_tracker.scheduling.model import Promise

KEPT: Final = 500
"""The number of last waits that count."""
LEAST: Final = 60.0
"""Seconds. A shorter wait is not estimated from the work ahead, and does not correct the P90."""
_PRIOR: Final = tuple(0.1 * step for step in range(1, 11)) * 3
"""The factors that are taken to be known before any wait."""
_HIGH: Final = 0.9
_STEP: Final = 0.002
_SHARES: Final = (0.8, 0.99)
"""The bounds of the share that the P90 stands for."""
_MOST_TEXT: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a job is expected to wait from now on, in seconds."""

    median: float
    high: float
    """Nine in ten such jobs start earlier."""


@dataclass(frozen=True, slots=True)
class WaitRule:
    """How waits follow from the work ahead, as learned."""

    median: float = 0.5
    """The median of the factors."""
    high: float = 0.9
    """Nine in ten factors are smaller."""
    last: float | None = None
    """The median of the last waits, in seconds; None: there are none."""

    def wait(self, seconds_ahead: float, promised: float | None = None) -> Wait:
        """Return how long a job waits with this much work ahead, and no longer than `promised`."""
        seconds = max(LEAST, seconds_ahead)
        median, high = seconds * self.median, seconds * self.high
        if self.last is not None:
            # Waits change slowly, so the mean of two estimates of the middle errs less than each of them.
            median = min(high, (median + self.last) / 2)
        if promised is not None:
            median, high = min(median, promised), min(high, promised)
        return Wait(median, high)


@dataclass(slots=True)
class _Observed:
    begin: float
    ahead: float
    high: float
    """The P90 of its wait, when it began."""
    waited: float | None = None
    """None: it still waits."""
    is_judged: bool = False
    """Whether its P90 was corrected for."""


class WaitTimes:
    """The factors between waits and work ahead, of the last jobs."""

    def __init__(self, kept: int = KEPT) -> None:
        """Keep so many jobs."""
        self._kept = kept
        self._jobs: OrderedDict[int, _Observed] = OrderedDict()
        self._last: deque[float] = deque(maxlen=kept)
        """The waits of the jobs that started last."""
        self._share = _HIGH

    def observe(
        self, now: float, started: Iterable[int], ahead: Mapping[int, float], promises: Mapping[int, Promise]
    ) -> dict[int, Wait]:
        """Learn from a pass, and return the expected waits of the jobs that begin to wait after it.

        `started` are the jobs that it has admitted. `ahead` has the seconds of work ahead of those that were
        submitted since the last pass and were not admitted.
        """
        for job_id in started:
            self._started(job_id, now)
        for job in self._jobs.values():
            if job.waited is None and not job.is_judged and now - job.begin > max(LEAST, job.high):
                self._judge(job, was_late=True)
        if not ahead:
            return {}
        rule, found = self.rule(now), {}
        for job_id, seconds in ahead.items():
            promise = promises.get(job_id)
            found[job_id] = rule.wait(seconds, max(0.0, promise.at - now) if promise else None)
            if job_id not in self._jobs:
                self._jobs[job_id] = _Observed(now, max(LEAST, seconds), found[job_id].high)
                if len(self._jobs) > self._kept:
                    self._jobs.popitem(last=False)
        return found

    def forget(self, job_id: int) -> None:
        """Forget a job that has ended without a start: it says nothing about waits."""
        if job_id in self._jobs and self._jobs[job_id].waited is None:
            del self._jobs[job_id]

    def shift(self, seconds: float) -> None:
        """Move the begin of all waits by this much, since the clock was set by it."""
        for job in self._jobs.values():
            job.begin += seconds

    def waiting(self) -> list[int]:
        """Return the jobs that still wait."""
        return [job_id for job_id, job in self._jobs.items() if job.waited is None]

    def rule(self, now: float) -> WaitRule:
        """Return the rule that holds now. With it, the waits of many jobs cost little."""
        factors = [(factor, True) for factor in _PRIOR]
        for job in self._jobs.values():
            waited = max(0.0, now - job.begin) if job.waited is None else job.waited
            factors.append((waited / job.ahead, job.waited is not None))
        median, high = _quantiles(factors, (0.5, self._share))
        last = sorted(self._last)[(len(self._last) - 1) // 2] if self._last else None
        return WaitRule(median, high, last)

    def text(self) -> str:
        """Return all that was learned as JSON, for `restore`: some 30 kB at most."""
        jobs = [[job_id, *(_rounded(each) for each in astuple(job))] for job_id, job in self._jobs.items()]
        learned = {"share": self._share, "last": [_rounded(each) for each in self._last], "jobs": jobs}
        return json.dumps(learned, separators=(",", ":"))

    def restore(self, text: str) -> bool:
        """Replace what was learned by that of a text. Return False and keep it if it is none."""
        try:
            learned = json.loads(text if len(text) <= _MOST_TEXT else "")
            share = min(max(float(learned["share"]), _SHARES[0]), _SHARES[1])
            last = [max(0.0, float(each)) for each in learned["last"]]
            jobs = {int(job_id): _observed(*job) for job_id, *job in learned["jobs"]}
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
        self._share = share
        self._last = deque(last, maxlen=self._kept)
        self._jobs = OrderedDict(list(jobs.items())[-self._kept :])
        return True

    def _started(self, job_id: int, now: float) -> None:
        job = self._jobs.get(job_id)
        if job is None or job.waited is not None:
            return
        job.waited = max(0.0, now - job.begin)
        self._last.append(job.waited)
        if not job.is_judged and job.waited > LEAST:
            self._judge(job, was_late=job.waited > job.high)

    def _judge(self, job: _Observed, *, was_late: bool) -> None:
        job.is_judged = True
        step = _STEP * (_HIGH if was_late else _HIGH - 1)
        self._share = min(max(self._share + step, _SHARES[0]), _SHARES[1])


def _observed(begin: float, ahead: float, high: float, waited: float | None, is_judged: bool) -> _Observed:
    waited = None if waited is None else max(0.0, float(waited))
    return _Observed(float(begin), max(LEAST, float(ahead)), float(high), waited, bool(is_judged))


def _rounded(value: float | bool | None) -> float | bool | None:
    return value if value is None or isinstance(value, bool) else round(value, 1)


def _quantiles(factors: Sequence[tuple[float, bool]], shares: Sequence[float]) -> list[float]:
    """Return quantiles by the estimate of Kaplan and Meier. The flag is False for a lower bound."""
    ordered = sorted(factors, key=lambda factor: (factor[0], not factor[1]))
    found: list[float] = []
    surviving = 1.0
    for place, (factor, is_exact) in enumerate(ordered):
        if is_exact:
            surviving *= 1 - 1 / (len(ordered) - place)
        while len(found) < len(shares) and 1 - surviving >= shares[len(found)] - 1e-12:
            found.append(factor)
    return found + [ordered[-1][0]] * (len(shares) - len(found))
