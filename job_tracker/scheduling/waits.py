"""When a waiting job will start: quantiles of its wait, learned from how earlier waits turned out.

The wait is first taken to be the work ahead of the job over the capacity, with medians of run times. That is
wrong by a factor, which differs from cluster to cluster: run times have long tails, and jobs overtake. So the
factors of the last jobs are kept, and their quantiles are applied to the next one. A job that still waits
counts, too: its factor is larger than what it has waited so far (Kaplan and Meier, 1958). Otherwise only the
quick ones would count.
The median is half way to that of the last waits.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from job_tracker.scheduling.model import INSTANCES, Expected, Gang, Running, Snapshot

KEPT: Final = 500
"""The number of last waits that count."""
_LEAST: Final = 60.0
"""Seconds. A shorter wait is not estimated from the work ahead."""
_UNKNOWN: Final = Expected(median=36_000.0, high=259_200.0)
"""Of jobs with unknown run time: the factors correct it."""
_PRIOR: Final = tuple(0.1 * step for step in range(1, 11)) * 3
"""The factors that are taken to be known before any wait."""


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a job is expected to wait, in seconds from its submission."""

    median: float
    high: float
    """Nine in ten such jobs start earlier."""


@dataclass(frozen=True, slots=True)
class WaitRule:
    """How waits follow from the work ahead, as learned."""

    median: float
    """The median of the factors."""
    high: float
    """Nine in ten factors are smaller."""
    last: float | None = None
    """The median of the last waits, in seconds; None: there are none."""

    def wait(self, seconds_ahead: float) -> Wait:
        """Return how long a job waits with this much work ahead."""
        seconds = max(_LEAST, seconds_ahead)
        median, high = seconds * self.median, seconds * self.high
        if self.last is not None:
            # Waits change slowly, so the mean of two estimates of the middle errs less than each of them.
            median = min(high, (median + self.last) / 2)
        return Wait(median, high)


@dataclass(slots=True)
class _Observed:
    begin: float
    ahead: float
    waited: float | None = None
    """None: it still waits."""


def ahead(snapshot: Snapshot, now: float, job_ids: Iterable[int]) -> dict[int, float]:
    """Return the work ahead of waiting jobs, over the capacity, in seconds. It leaves out others."""
    capacity = sum(flavor.capacity.get(INSTANCES, 0) for flavor in snapshot.flavors)
    wanted = {job_id for job_id in job_ids if snapshot.waiting.get(job_id) is not None}
    if not wanted or not capacity:
        return {}
    done = sum(_left(each, now) for each in snapshot.running.values())
    gangs = (gang for queue in snapshot.waiting.queues() for gang in snapshot.waiting.in_order(queue))
    found = {}
    for gang in sorted(gangs, key=lambda gang: (-gang.priority, gang.job_id)):
        if gang.job_id in wanted:
            found[gang.job_id] = done / capacity
        done += size(gang) * (gang.expected or _UNKNOWN).median
    return found


def size(gang: Gang) -> int:
    """Return the number of instances of a gang."""
    return sum(part.count for part in gang.parts)


def _left(running: Running, now: float) -> float:
    """Return the work left of a running job. One past its median likely has half as much again before it."""
    passed = max(0.0, now - running.started_at)
    median = (running.gang.expected or _UNKNOWN).median
    return size(running.gang) * max(median - passed, passed / 2)


class WaitTimes:
    """The factors between waits and work ahead, of the last jobs."""

    def __init__(self, kept: int = KEPT) -> None:
        """Keep so many jobs."""
        self._kept = kept
        self._jobs: OrderedDict[int, _Observed] = OrderedDict()
        self._last: deque[float] = deque(maxlen=kept)
        """The waits of the jobs that started last."""

    def submitted(self, job_id: int, now: float, seconds_ahead: float) -> Wait:
        """Learn of a job that begins to wait with this much work ahead, and return its expected wait."""
        wait = self.expected(now, seconds_ahead)
        self._jobs[job_id] = _Observed(now, max(_LEAST, seconds_ahead))
        if len(self._jobs) > self._kept:
            self._jobs.popitem(last=False)
        return wait

    def started(self, job_id: int, now: float) -> None:
        """Learn that a job has started."""
        if (job := self._jobs.get(job_id)) is not None:
            job.waited = max(0.0, now - job.begin)
            self._last.append(job.waited)

    def forget(self, job_id: int) -> None:
        """Forget a job that has ended without a start: it says nothing about waits."""
        self._jobs.pop(job_id, None)

    def expected(self, now: float, seconds_ahead: float) -> Wait:
        """Return how long a job waits that is submitted now with this much work ahead."""
        return self.rule(now).wait(seconds_ahead)

    def rule(self, now: float) -> WaitRule:
        """Return the rule that holds now. With it, the waits of many jobs cost little."""
        factors = [(factor, True) for factor in _PRIOR]
        for job in self._jobs.values():
            waited = max(0.0, now - job.begin) if job.waited is None else job.waited
            factors.append((waited / job.ahead, job.waited is not None))
        median, high = _quantiles(factors, (0.5, 0.9))
        last = sorted(self._last)[(len(self._last) - 1) // 2] if self._last else None
        return WaitRule(median, high, last)


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
