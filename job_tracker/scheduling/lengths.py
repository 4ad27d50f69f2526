"""The planned run times of gangs."""

import math

from job_tracker.scheduling.model import Expected, Running


def planned_length(expected: Expected | None) -> float:
    """Return the seconds for which a gang is planned to hold its resources. Infinite: unknown.

    The planned length is the high estimate, so that most promises are kept: a job that ends earlier than
    planned seldom delays others.
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

    If the gang has run longer than the expected median, the high estimate counts instead. If it has run
    longer than this, too, or if the run time is unknown, return the time that it has run so far.
    """
    ran, expected = max(0.0, now - run.started_at), run.gang.expected
    if expected is not None and expected.median > ran:
        return expected.median - ran
    if expected is not None and expected.high > ran:
        return expected.high - ran
    return ran
