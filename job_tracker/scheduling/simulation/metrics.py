"""Metrics of a simulation: utilisation, waiting, fairness, and kept promises."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from job_tracker.scheduling.simulation.record import Record

Key = TypeVar("Key", str, int)

_KEPT_WITHIN = 0.01
"""The tolerance of promises, in seconds: times are sums with rounding errors."""


@dataclass(frozen=True, slots=True)
class Waits:
    """The waiting times of some jobs, in seconds."""

    jobs: int
    mean: float
    median: float
    high: float
    """The P90: nine in ten jobs waited at most this long."""

    @classmethod
    def of(cls, waits: Sequence[float]) -> "Waits":
        """Summarize waiting times."""
        ordered = sorted(waits)
        if not ordered:
            return cls(0, math.nan, math.nan, math.nan)
        return cls(len(ordered), fmean(ordered), quantile(ordered, 0.5), quantile(ordered, 0.9))


@dataclass(frozen=True, slots=True)
class Fairness:
    """The shares of the machines that the queues had in a span of time."""

    begin: float
    end: float
    """The end of the span, in seconds from the beginning of the simulation."""
    shares: Mapping[str, float]
    """The largest share that each queue had of any resource, by queue."""
    utilisation: float
    """The used share of the most used resource, over all queues."""
    index: float
    """Jain's fairness index of usage divided by weight, over the queues that had jobs. 1: the values of all
    these queues were equal.
    """


@dataclass(frozen=True)
class Summary:
    """The figures of a simulation."""

    by_resource: Mapping[str, float]
    """The work that was done, by resource, as a share of the work that the machines could have done from
    the beginning of the simulation to the last end of a job.
    """
    end: float
    """The time at which the last job ended, in seconds."""
    waits: Waits
    by_size: Mapping[int, Waits]
    by_queue: Mapping[str, Waits]
    by_project: Mapping[str, Waits]
    promised: int
    """The number of jobs that started in the simulation after they had been promised a start."""
    kept: int
    """The number of these jobs that started no later than first promised."""
    unstarted: int
    """The number of jobs that never started, were refused, or were stopped and never continued."""
    stopped: int = 0
    """The number of attempts that were stopped for other jobs. Attempts in `resized` do not count."""
    resized: int = 0
    """The number of attempts that were stopped so that their jobs continue with more or fewer instances."""
    evicted: int = 0
    """The number of attempts that were stopped because a machine was taken away."""
    lost: float = 0.0
    """The instance-seconds that all these stops have cost."""

    @property
    def utilisation(self) -> float:
        """The utilisation of the resource that was used most."""
        return max(self.by_resource.values(), default=0.0)

    @property
    def largest(self) -> Waits:
        """The waits of the largest jobs that started."""
        return self.by_size[max(self.by_size)] if self.by_size else Waits.of(())


def summary(records: Sequence[Record], capacity: Mapping[str, int]) -> Summary:
    """Return the figures of a simulation. `capacity` has the resources of the cluster."""
    started = [record for record in records if record.started_at is not None]
    waited = [record for record in started if record.has_waited]
    end = max((record.ended_at for record in started), default=0.0)
    done = dict.fromkeys(capacity, 0.0)
    for span in (span for record in started for span in record.spans):
        for resource, amount in span.held.items():
            if resource in done:
                done[resource] += amount * (span.end - max(0.0, span.begin) - span.lost)
    promised = [record for record in waited if record.first_promise is not None]
    return Summary(
        by_resource={
            name: work / (capacity[name] * end) if end and capacity[name] else 0.0
            for name, work in done.items()
        },
        end=end,
        waits=Waits.of([record.waited for record in waited]),
        by_size=_waits_by(waited, lambda record: record.job.instances),
        by_queue=_waits_by(waited, lambda record: record.job.queue),
        by_project=_waits_by(waited, lambda record: record.job.project),
        promised=len(promised),
        kept=sum(is_kept(record) for record in promised),
        unstarted=sum(not record.is_done for record in records),
        stopped=sum(not stop.trainers for record in records for stop in record.stops),
        resized=sum(stop.trainers > 0 for record in records for stop in record.stops),
        evicted=sum(record.evictions for record in records),
        lost=sum(record.lost for record in records),
    )


def _waits_by(records: Iterable[Record], key_of: Callable[[Record], Key]) -> dict[Key, Waits]:
    waits: dict[Key, list[float]] = {}
    for record in records:
        waits.setdefault(key_of(record), []).append(record.waited)
    return {key: Waits.of(waits[key]) for key in sorted(waits)}


def is_kept(record: Record) -> bool:
    """Return whether a job started no later than first promised, or had no promise or no start."""
    late = record.started_at is not None and record.first_promise is not None
    return not late or record.started_at <= record.first_promise + _KEPT_WITHIN  # type: ignore[operator]


def over_time(
    records: Sequence[Record],
    capacity: Mapping[str, int],
    spans: int = 100,
    weights: Mapping[str, float] | None = None,
) -> list[Fairness]:
    """Return how the queues share the machines over time, in spans of equal length."""
    started = [record for record in records if record.started_at is not None]
    end = max((record.ended_at for record in started), default=0.0)
    if not end:
        return []
    queues = sorted({record.job.queue for record in started})
    length = end / spans
    limited = [name for name, amount in capacity.items() if amount]
    used = {(queue, name): [0.0] * spans for queue in queues for name in limited}
    present = {queue: [0.0] * spans for queue in queues}
    for record in started:
        assert record.started_at is not None
        queue = record.job.queue
        for span in record.spans:
            held = [
                (used[queue, name], span.held.get(name, 0) / (capacity[name] * length)) for name in limited
            ]
            for place, seconds in _spread(max(0.0, span.begin), span.end, length, spans):
                for shares, share in held:
                    shares[place] += seconds * share
        for place, seconds in _spread(max(0.0, record.job.submitted_at), record.ended_at, length, spans):
            present[queue][place] += seconds
    return [
        _span(
            place * length,
            length,
            {queue: {name: used[queue, name][place] for name in limited} for queue in queues},
            {queue for queue in queues if present[queue][place] > 0},
            weights or {},
        )
        for place in range(spans)
    ]


def _span(
    begin: float,
    length: float,
    used: Mapping[str, Mapping[str, float]],
    present: Set[str],
    weights: Mapping[str, float],
) -> Fairness:
    shares = {queue: max(each.values(), default=0.0) for queue, each in used.items()}
    names = next(iter(used.values()), {})
    return Fairness(
        begin=begin,
        end=begin + length,
        shares=shares,
        utilisation=max((sum(each[name] for each in used.values()) for name in names), default=0.0),
        index=jain([share / weights.get(queue, 1.0) for queue, share in shares.items() if queue in present]),
    )


def _spread(begin: float, end: float, length: float, spans: int) -> Iterator[tuple[int, float]]:
    """Yield the number of each span that the interval touches, and the seconds of the interval that lie in
    it.
    """
    for place in range(int(begin / length), min(spans, int(end / length) + 1)):
        seconds = min(end, (place + 1) * length) - max(begin, place * length)
        if seconds > 0:
            yield place, seconds


def jain(values: Sequence[float]) -> float:
    """Return Jain's index of fairness (Jain, Chiu and Hawe, 1984): 1 if all values are equal, 1/n if all
    but one are 0.
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of the sorted values that has at least this share of all values at or below it."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
