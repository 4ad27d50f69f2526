"""The planned run times of gangs."""

import math

from job_tracker.scheduling.model import Expected, Running


def planned_length(expected: Expected | None) -> float:
    """Return the seconds for which a gang is planned to hold its resources. Infinite: unknown.

    The planned length is the high estimate. Most gangs end earlier, so most promises are kept.
    """
    if expected is None:
        return math.inf
    return expected.high if expected.high > 0 else 1.0


def planned_end(run: Running, now: float) -> float:
    """Return the time, later than now, at which a running gang is planned to end.

    If a gang runs longer than planned, its planned length is doubled until the end is later than now.
    """
    length = planned_length(run.gang.expected)
    while run.started_at + length <= now:
        length *= 2
    return run.started_at + length


def remaining(run: Running, now: float) -> float:
    """Return the seconds for which a gang is expected to continue.

    The gang is expected to end at the median of its run time. If it has run longer than the median, the high
    estimate counts instead. If it has also run longer than the high estimate, or if its run time is unknown,
    it is expected to run as long again as it has run so far.
    """
    ran, expected = max(0.0, now - run.started_at), run.gang.expected
    if expected is not None and expected.median > ran:
        return expected.median - ran
    if expected is not None and expected.high > ran:
        return expected.high - ran
    return ran
