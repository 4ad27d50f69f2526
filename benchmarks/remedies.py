"""Explanations: whether the first proposal of `trainctl why` lets the job start, and how fast estimates are.

python -m benchmarks.remedies [--quick]

In each of 1,000 random states (100 with --quick), the wait of one job is explained. The changes that the
explanation proposes are applied to the state, and a plan for the changed state must admit the job. Only the
times depend on the machine.
"""

import random
import time
from collections import Counter

from benchmarks.support import Row, run_alone
from job_tracker.scheduling.changes import applied
from job_tracker.scheduling.estimates import estimates
from job_tracker.scheduling.explanations import Explanation, Situation, explain
from job_tracker.scheduling.model import (
    Allocation,
    Expected,
    Flavor,
    Gang,
    Part,
    Queue,
    Reason,
    Running,
    Snapshot,
)
from job_tracker.scheduling.planner import plan
from job_tracker.scheduling.waiting import WaitingGangs
from job_tracker.scheduling.waits import WaitRule
from tests.support.random_queues import CLASSES, NOW, gangs_of, random_state, started

_STATES, _QUICK = 1_000, 100
_QUEUED = 10_000
_WORKS_AT_LEAST = 0.99
_SECONDS_AT_MOST = 1.0


def measure(quick: bool) -> list[Row]:
    return [*_remedies(_QUICK if quick else _STATES), _estimates()]


def _remedies(states: int) -> list[Row]:
    works, unknown, seconds = 0, 0, []
    cures = Counter[str]()
    for seed in range(states):
        situation, gang = _situation(seed)
        begin = time.perf_counter()
        found = explain(situation, gang.job_id, priorities=CLASSES)
        seconds.append(time.perf_counter() - begin)
        cures[found.remedy.cure.value] += 1
        works += _starts(situation, gang, found)
        unknown += _is_unknown(found)
    seconds.sort()
    return [
        Row(
            f"the first remedy lets the job start ({states:,} random states)",
            f"{works / states:.1%}",
            target=f"≥ {_WORKS_AT_LEAST:.0%}",
            met=works >= _WORKS_AT_LEAST * states,
        ),
        Row("what the remedies change", ", ".join(f"{name} {n}" for name, n in cures.most_common())),
        Row("jobs that wait without a reason or an estimate", f"{unknown}", target="0", met=unknown == 0),
        Row(
            "time of an explanation, P50 and P99",
            f"{seconds[len(seconds) // 2] * 1000:.0f} ms, {seconds[int(len(seconds) * 0.99)] * 1000:.0f} ms",
        ),
    ]


def _situation(seed: int) -> tuple[Situation, Gang]:
    """Return a random state after a pass, and one of its jobs that still waits."""
    while True:
        state = random_state(seed)
        state = started(state, plan(state, NOW), NOW)
        gangs = gangs_of(state)
        if gangs:
            return Situation(state, plan(state, NOW), NOW), random.Random(seed).choice(gangs)
        seed += 1_000_000


def _starts(situation: Situation, gang: Gang, found: Explanation) -> bool:
    changed = applied(situation.snapshot, gang, found.remedy.changes)
    return any(admit.job_id == gang.job_id for admit in plan(changed, NOW).admitted)


def _is_unknown(found: Explanation) -> bool:
    if not found.reasons or not found.remedy.text:
        return True
    # There is no estimate for a job that does not fit, for a job whose queue may run no more jobs, or for a
    # job that the service's machine has no room to launch. Such a job's first reason is one of the following.
    never = found.reasons[0] in (Reason.LOST_CAPACITY, Reason.MAX_RUNNING, Reason.ROOM)
    return found.estimate is None and not never


def _estimates() -> Row:
    queues = {f"q{i}": Queue(name=f"q{i}") for i in range(1000)}
    length = Expected(median=100.0, high=200.0)

    def gang(job_id: int) -> Gang:
        return Gang(job_id=job_id, queue=f"q{job_id % 1000}", parts=(Part(1, {}),), expected=length)

    running = {number: Running(gang(number), Allocation(), NOW) for number in range(5_000)}
    snapshot = Snapshot(
        flavors=(Flavor(name="default", capacity={"instances": 5_000}),),
        queues=queues,
        waiting=WaitingGangs(gang(10_000 + number) for number in range(_QUEUED)),
        running=running,
    )
    begin = time.perf_counter()
    found = estimates(snapshot, NOW, WaitRule(), {})
    took = time.perf_counter() - begin
    return Row(
        f"estimates of {len(found):,} queued jobs",
        f"{took * 1000:.0f} ms",
        target=f"< {_SECONDS_AT_MOST:.0f} s",
        met=took < _SECONDS_AT_MOST and len(found) == _QUEUED,
    )


if __name__ == "__main__":
    run_alone(measure)
