"""The planned run times of gangs."""

import math

from job_tracker.scheduling.model import Expected, Running


def planned_length(expected: Expected | None) -> float:
    """Return for how long a gang is planned to hold its resources. Infinite: unknown.

    It is the high estimate, so that most promises are kept: a job that ends early only moves others forward.
    """
    if expected is None:
        return math.inf
    return expected.high if expected.high > 0 else 1.0


def planned_end(run: Running, now: float) -> float:
    """Return when a running gang is planned to end, later than now.

    One that runs longer than planned is given twice as long, again and again: it is assumed to end soon.
    """
    length = planned_length(run.gang.expected)
    while run.started_at + length <= now:
        length *= 2
    return run.started_at + length


def remaining(run: Running, now: float) -> float:
    """Return how long a gang is expected to run on. Of unknown length, as long as it has run."""
    ran, expected = max(0.0, now - run.started_at), run.gang.expected
    if expected is not None and expected.median > ran:
        return expected.median - ran
    if expected is not None and expected.high > ran:
        return expected.high - ran
    return ran
