"""The shares of queues relative to their weights, while jobs wait: a simulation with the service's planner.

    python -m benchmarks.fair_shares [--quick]

A constant number of jobs waits, equally many in each queue. The planner reserves a start for at most 100
waiting jobs. Shallow queues have fewer than 100 waiting jobs in all, and deep queues have more. Jobs have 1
to 4 instances, and run for 1 to 10 minutes, drawn with a fixed seed, so nothing depends on the machine. Only
the second half of the time counts.
"""

import random
from collections.abc import Iterator, Mapping
from typing import Final

from benchmarks.support import Row, run_alone
from job_tracker.scheduling.model import Queue, Waiting
from job_tracker.scheduling.simulation.cluster import Cluster
from job_tracker.scheduling.simulation.metrics import jain, over_time
from job_tracker.scheduling.simulation.policies import PolicyName, policy_of
from job_tracker.scheduling.simulation.replay import replay
from job_tracker.scheduling.simulation.trace import TraceJob

CAPACITY: Final = 40
SHALLOW, DEEP = 60, 300
"""The number of waiting jobs in all queues together."""
_SIZES = (1, 1, 2, 4)
_SHORTEST, _LONGEST = 60.0, 600.0
_HOURS, _QUICK_HOURS = 8.0, 4.0
_SPANS = 100
_WITHIN, _JAIN = 0.02, 0.98


def measure(quick: bool) -> list[Row]:
    return [row for waiting in (SHALLOW, DEEP) for row in _with(waiting, quick)]


def _with(waiting: int, quick: bool) -> Iterator[Row]:
    hours = _QUICK_HOURS if quick else _HOURS
    kind = f"{waiting} waiting jobs"
    two = shares({"a": 1.0, "b": 3.0}, waiting // 2, hours * 3600)
    ratio = two["b"] / two["a"] / 3
    yield Row(
        f"fair-shares: share of weight 3 to that of weight 1, {kind}",
        f"{two['b']:.1%} to {two['a']:.1%}",
        "75 % to 25 %",
        f"{ratio:.3f}",
        f"1 ± {_WITHIN}",
        abs(ratio - 1) <= _WITHIN,
    )
    weights = {f"q{number:02}": 1.0 + number % 3 for number in range(20)}
    twenty = shares(weights, waiting // len(weights), hours * 3600)
    index = jain([share / weights[name] for name, share in twenty.items()])
    yield Row(
        f"fair-shares: Jain's index of share over weight, 20 queues, {kind}",
        f"{index:.4f}",
        "",
        "",
        f"≥ {_JAIN}",
        index >= _JAIN,
    )


def shares(weights: Mapping[str, float], depth: int, seconds: float) -> dict[str, float]:
    """Simulate `seconds`, and return each queue's share of the work in the second half of this time.

    In each queue, `depth` jobs always wait.
    """
    draws = random.Random(1)  # not for secrets
    queues = {name: Queue(name=name, weight=weight) for name, weight in weights.items()}
    cluster = Cluster(Cluster.of(CAPACITY).flavors, queues)

    def job(queue: str, at: float) -> TraceJob:
        return TraceJob(at, draws.uniform(_SHORTEST, _LONGEST), draws.choice(_SIZES), queue)

    def more(now: float, waiting: Waiting) -> list[TraceJob]:
        if now >= seconds:
            return []
        lacking = {name: depth - sum(1 for _ in waiting.in_order(name)) for name in weights}
        return [job(name, now) for name, count in lacking.items() for _ in range(count)]

    first = [job(name, 0.0) for name in weights for _ in range(depth)]
    records = replay(first, policy_of(PolicyName.PLANNER, cluster), cluster, more=more)
    # Leave out jobs that started after `seconds`, when some queues had no waiting jobs any more.
    kept = [each for each in records if each.started_at is not None and each.started_at < seconds]
    spans = over_time(kept, cluster.resources, _SPANS)
    used = dict.fromkeys(weights, 0.0)
    for span in spans:
        if span.begin >= seconds / 2 and span.end <= seconds:
            for name, share in span.shares.items():
                used[name] += share
    return {name: amount / sum(used.values()) for name, amount in used.items()}


if __name__ == "__main__":
    run_alone(measure)
