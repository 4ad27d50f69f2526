"""Expected waits of jobs: quantiles, learned from earlier waits.

The first estimate of a wait is the work ahead of the job over the capacity, with medians of run times. It is
wrong by a factor, which differs from cluster to cluster: run times have long tails, and jobs overtake. So the
factors of the jobs that started last are kept, and their quantiles are applied to the next job.

A job that still waits counts, too: its factor is larger than that of its wait so far (Kaplan and Meier,
1958). Otherwise, only the quick jobs would count. Each job is followed until it starts, however many are
submitted after it: long waits say most. The median is half way to that of the last waits.

The share of the factors that the P90 stands for follows its own success. It rises a little with each job that
waits longer than its P90, and falls a little with each that does not (adaptive conformal inference; Gibbs and
Candès, 2021).
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Final

from job_tracker.scheduling.model import Promise

KEPT: Final = 500
"""The number of last waits that count, and the largest number of waiting jobs that are followed."""
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
    """The time that a job is expected to wait from now on, in seconds."""

    median: float
    high: float
    """Nine in ten such jobs start earlier."""


@dataclass(frozen=True, slots=True)
class WaitRule:
    """The learned rule by which waits follow from the work ahead."""

    median: float = 0.5
    """The median of the factors."""
    high: float = 0.9
    """Nine in ten factors are smaller."""
    last: float | None = None
    """The median of the last waits, in seconds; None: there are none."""

    def wait(self, seconds_ahead: float, promised: float | None = None) -> Wait:
        """Return the expected wait with this much work ahead, at most until `promised`."""
        seconds = max(LEAST, seconds_ahead)
        median, high = seconds * self.median, seconds * self.high
        if self.last is not None:
            # Waits change slowly. So the mean of two estimates of the middle has a smaller error than either
            # of them.
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
    """The P90 of its wait, when it began."""
    is_judged: bool = False
    """Whether its P90 was corrected for."""


class WaitTimes:
    """The factors between waits and work ahead, of the jobs that started last and of some that wait."""

    def __init__(self, kept: int = KEPT) -> None:
        """Keep at most this many of both."""
        self._kept = kept
        self._waiting: dict[int, _Followed] = {}
        self._last: deque[tuple[float, float]] = deque(maxlen=kept)
        """The waits of the jobs that started last, and the work that was ahead of them, in seconds."""
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
        """Forget a job that has ended without a start: it says nothing about waits."""
        self._waiting.pop(job_id, None)

    def shift(self, seconds: float) -> None:
        """Move the start of all waits by the amount by which the clock was set."""
        for job in self._waiting.values():
            job.begin += seconds

    def waiting(self) -> list[int]:
        """Return the jobs that are followed."""
        return list(self._waiting)

    def rule(self, now: float) -> WaitRule:
        """Return the rule that holds now. With it, the waits of many jobs cost little."""
        factors = [(factor, True) for factor in _PRIOR]
        factors += [(waited / ahead, True) for waited, ahead in self._last]
        factors += [(max(0.0, now - job.begin) / job.ahead, False) for job in self._waiting.values()]
        median, high = _quantiles(factors, (0.5, self._share))
        last = sorted(waited for waited, _ in self._last)
        return WaitRule(median, high, last[(len(last) - 1) // 2] if last else None)

    def text(self) -> str:
        """Return all that was learned as JSON, for `restore`: some 40 kB at most."""
        waiting = [[job_id, *map(_rounded, astuple(job))] for job_id, job in self._waiting.items()]
        last = [[_rounded(each) for each in job] for job in self._last]
        learned = {"share": self._share, "last": last, "waiting": waiting}
        return json.dumps(learned, separators=(",", ":"))

    def restore(self, text: str) -> bool:
        """Replace the learned state by that in a text. Return False and keep it if the text is invalid."""
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
