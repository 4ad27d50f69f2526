"""Limits on calls, by caller and kind of call."""

from collections.abc import Mapping

from job_tracker.common.rates import Rate
from job_tracker.domain.call_kinds import CallKind
from job_tracker.domain.caller import Caller, Means
from job_tracker.domain.errors import RateExceeded


class CallLimits:
    """Counts the calls of each caller, and refuses those beyond the limits. Each call uses it."""

    def __init__(self, rates: Mapping[CallKind, Rate | None] | None = None) -> None:
        """Kinds without a rate have no limit."""
        self._rates = {kind: rate for kind, rate in (rates or {}).items() if rate is not None}

    def check(self, kind: CallKind, caller: Caller) -> None:
        """Count a call. Raises RateExceeded."""
        rate = self._rates.get(kind)
        if rate is not None and (wait := rate.take(caller.key)):
            who = f"callers at {caller.address or 'this host'}" if caller.means is Means.OPEN else caller.name
            raise _exceeded(kind, rate, who, wait)

    def check_report(self, job_id: int, attempt: int) -> None:
        """Count a report of an attempt. Raises RateExceeded."""
        rate = self._rates.get(CallKind.REPORT)
        if rate is not None and (wait := rate.take((job_id, attempt))):
            raise _exceeded(CallKind.REPORT, rate, f"attempt {attempt} of job {job_id}", wait)


def _exceeded(kind: CallKind, rate: Rate, who: str, wait: float) -> RateExceeded:
    return RateExceeded(
        f"too many {kind} calls: {who} may make {rate.per_second:g} a second, and {rate.burst} after a pause",
        setting=f"limits.{kind}_rate",
        wait=wait,
    )
