"""Names the links and instances that are much slower than the others."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from network_check.result import PairResult

NOISE = 0.001
"""A latency is slow only if it exceeds the median by more than this time in seconds.

A busy processor may make a latency longer by up to this time.
"""

Measure = Literal["latency", "bandwidth"]
_VALUES: dict[Measure, Callable[[PairResult], float]] = {
    "latency": lambda pair: pair.latency_s,
    # The inverse of the bandwidth, so that a higher value means a slower link for both measures.
    "bandwidth": lambda pair: 1 / pair.bandwidth_bytes_per_s,
}


@dataclass(frozen=True)
class Slow:
    """A slow instance or pair."""

    kind: Literal["instance", "pair"]
    measure: Measure
    value: float
    """The measured value: seconds for a latency, bytes per second for a bandwidth."""
    median: float
    times: float
    """The factor by which the instance or pair is slower than the median."""
    instance: int | None = None
    source: int | None = None
    destination: int | None = None

    def __str__(self) -> str:
        who = (
            f"instance {self.instance}" if self.kind == "instance" else f"{self.source} → {self.destination}"
        )
        return f"{who}: {self.measure} {self.times:.1f} times worse than usual ({_text(self)})"


def slow_links(pairs: Sequence[PairResult], local_size: int, factor: float) -> list[Slow]:
    """Return the instances and then the pairs that are slow by latency; after these, those slow by bandwidth.

    An instance is slow if even the best of its links is more than `factor` times slower than the median of
    the best links of all instances. A pair is slow if it is more than `factor` times slower than the median
    of the pairs whose instances are not slow. Pairs with a slow instance are left out. So one slow instance
    does not make its peers look slow, if there are three or more instances. A pair of ranks within one
    instance is compared only with other pairs within an instance. Such a pair stays even if its instance is
    slow. For an even number of values, the median is the faster of the two middle values. So even one of two
    links can be slow. To be slow by latency, an instance or pair must also exceed the median by more than
    `NOISE`.
    """
    between = [pair for pair in pairs if pair.source // local_size != pair.destination // local_size]
    within = [pair for pair in pairs if pair not in between]
    found: list[Slow] = []
    for measure, value in _VALUES.items():
        slow_instances = list(_slow_instances(between, local_size, measure, value, factor))
        found += slow_instances
        names = {slow.instance for slow in slow_instances}
        others = [
            pair
            for pair in between
            if not names & {pair.source // local_size, pair.destination // local_size}
        ]
        found += _slow_pairs(others, measure, value, factor)
        found += _slow_pairs(within, measure, value, factor)
    return found


def _slow_instances(
    pairs: Iterable[PairResult],
    local_size: int,
    measure: Measure,
    value: Callable[[PairResult], float],
    factor: float,
) -> Iterator[Slow]:
    best: dict[int, float] = {}
    for pair in pairs:
        for rank in (pair.source, pair.destination):
            instance = rank // local_size
            best[instance] = min(value(pair), best.get(instance, value(pair)))
    if not best:
        return
    median = statistics.median_low(best.values())
    for instance, seconds in sorted(best.items()):
        if _is_slow(measure, seconds, median, factor):
            yield Slow(
                "instance",
                measure,
                _shown(measure, seconds),
                _shown(measure, median),
                seconds / median,
                instance,
            )


def _slow_pairs(
    pairs: Sequence[PairResult], measure: Measure, value: Callable[[PairResult], float], factor: float
) -> Iterator[Slow]:
    if not pairs:
        return
    median = statistics.median_low(value(pair) for pair in pairs)
    for pair in pairs:
        if _is_slow(measure, value(pair), median, factor):
            yield Slow(
                "pair",
                measure,
                _shown(measure, value(pair)),
                _shown(measure, median),
                value(pair) / median,
                source=pair.source,
                destination=pair.destination,
            )


def _is_slow(measure: Measure, seconds: float, median: float, factor: float) -> bool:
    return seconds > factor * median and (measure == "bandwidth" or seconds - median > NOISE)


def _shown(measure: Measure, value: float) -> float:
    return value if measure == "latency" else 1 / value


def _text(slow: Slow) -> str:
    if slow.measure == "latency":
        return f"{slow.value * 1000:.2f} ms, median {slow.median * 1000:.2f} ms"
    return f"{slow.value / 1e6:.2f} MB/s, median {slow.median / 1e6:.2f} MB/s"
