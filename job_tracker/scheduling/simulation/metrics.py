"""What a simulation shows: utilisation, waiting, fairness, and kept promises."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from job_tracker.scheduling.simulation.replay import Record

_KEPT_WITHIN = 0.01
"""Seconds: times are sums, which are rounded."""


@dataclass(frozen=True, slots=True)
class Waits:
    """The waiting times of some jobs, in seconds."""

    jobs: int
    mean: float
    median: float
    high: float
    """Nine in ten waited less."""

    @classmethod
    def of(cls, waits: Sequence[float]) -> "Waits":
        """Summarize waiting times."""
        ordered = sorted(waits)
        if not ordered:
            return cls(0, math.nan, math.nan, math.nan)
        return cls(len(ordered), fmean(ordered), quantile(ordered, 0.5), quantile(ordered, 0.9))


@dataclass(frozen=True, slots=True)
class Fairness:
    """How the queues shared the machines in a span of time."""

    begin: float
    end: float
    """Seconds from the beginning of the simulation."""
    shares: Mapping[str, float]
    """What each queue used, as a share of the capacity."""
    index: float
    """Jain's index of usage over weight, of the queues that had jobs: 1 is fair."""


@dataclass(frozen=True)
class Summary:
    """The figures of a simulation."""

    utilisation: float
    """Work done, as a share of what the machines could do from the first submission to the last end."""
    end: float
    """The last end, in seconds."""
    waits: Waits
    by_size: Mapping[int, Waits]
    by_queue: Mapping[str, Waits]
    promised: int
    """How many jobs have had a promised start."""
    kept: int
    """How many of them started no later than first promised."""
    unstarted: int
    """How many jobs never started or were refused."""

    @property
    def largest(self) -> Waits:
        """The waits of the largest jobs that started."""
        return self.by_size[max(self.by_size)] if self.by_size else Waits.of(())


def summary(records: Sequence[Record], capacity: int) -> Summary:
    """Return the figures of a simulation."""
    started = [record for record in records if record.started_at is not None]
    end = max((record.ended_at for record in started), default=0.0)
    done = sum(record.job.run * record.job.instances for record in started)
    promised = [record for record in started if record.first_promise is not None]
    return Summary(
        utilisation=done / (capacity * end) if end else 0.0,
        end=end,
        waits=Waits.of([record.waited for record in started]),
        by_size={
            size: Waits.of([record.waited for record in started if record.job.instances == size])
            for size in sorted({record.job.instances for record in started})
        },
        by_queue={
            queue: Waits.of([record.waited for record in started if record.job.queue == queue])
            for queue in sorted({record.job.queue for record in started})
        },
        promised=len(promised),
        kept=sum(is_kept(record) for record in promised),
        unstarted=len(records) - len(started),
    )


def is_kept(record: Record) -> bool:
    """Return whether a job started no later than first promised."""
    late = record.started_at is not None and record.first_promise is not None
    return not late or record.started_at <= record.first_promise + _KEPT_WITHIN  # type: ignore[operator]


def over_time(
    records: Sequence[Record], capacity: int, spans: int = 100, weights: Mapping[str, float] | None = None
) -> list[Fairness]:
    """Return how the queues share the machines over time, in spans of equal length."""
    started = [record for record in records if record.started_at is not None]
    end = max((record.ended_at for record in started), default=0.0)
    if not end:
        return []
    queues = sorted({record.job.queue for record in started})
    length = end / spans
    used = {queue: [0.0] * spans for queue in queues}
    present = {queue: [0.0] * spans for queue in queues}
    for record in started:
        assert record.started_at is not None
        for place, seconds in _spread(record.started_at, record.ended_at, length, spans):
            used[record.job.queue][place] += seconds * record.job.instances / (capacity * length)
        for place, seconds in _spread(record.job.submitted_at, record.ended_at, length, spans):
            present[record.job.queue][place] += seconds
    return [
        Fairness(
            begin=place * length,
            end=(place + 1) * length,
            shares={queue: used[queue][place] for queue in queues},
            index=jain(
                [
                    used[queue][place] / (weights or {}).get(queue, 1.0)
                    for queue in queues
                    if present[queue][place] > 0
                ]
            ),
        )
        for place in range(spans)
    ]


def _spread(begin: float, end: float, length: float, spans: int) -> Iterator[tuple[int, float]]:
    """Yield each span that an interval touches, and the seconds that lie in it."""
    for place in range(int(begin / length), min(spans, int(end / length) + 1)):
        seconds = min(end, (place + 1) * length) - max(begin, place * length)
        if seconds > 0:
            yield place, seconds


def jain(values: Sequence[float]) -> float:
    """Return Jain's index of fairness (Jain, Chiu and Hawe, 1984): 1 if all are equal, 1/n if one has all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the least value with at least this share of the sorted values at or below it."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
