"""Limits on calls, by caller and kind of call."""

from collections.abc import Mapping

from job_tracker.common.rates import Rate
from job_tracker.domain.call_kinds import KINDS, CallKind
from job_tracker.domain.caller import Caller, Means
from job_tracker.domain.errors import RateExceeded


class CallLimits:
    """Counts the calls of each caller, and refuses calls beyond the limits.

    Every call is checked here, so this code must be fast.
    """

    def __init__(self, rates: Mapping[CallKind, Rate | None] | None = None) -> None:
        """A kind of call without a rate has no limit."""
        given = rates or {}
        self._reports = given.get(CallKind.REPORT)
        # The keys are names of calls, since a kind takes longer to hash than a string.
        self._rates = {name: rate for name, kind in KINDS.items() if (rate := given.get(kind)) is not None}

    def check(self, call: str, caller: Caller) -> None:
        """Count a call of this name. Raises RateExceeded if the caller makes too many calls of this kind."""
        rate = self._rates.get(call)
        if rate is not None and (wait := rate.take(caller.key)):
            who = f"callers at {caller.key or 'this host'}" if caller.means is Means.OPEN else caller.name
            raise _exceeded(KINDS[call], rate, who, wait)

    def check_report(self, job_id: int, attempt: int, process: int = 0) -> None:
        """Count a call that a process of an attempt makes with its report token.

        Raises RateExceeded if the process makes too many calls.
        """
        rate = self._reports
        if rate is not None and (wait := rate.take((job_id, attempt, process))):
            who = f"process {process} of attempt {attempt} of job {job_id}"
            raise _exceeded(CallKind.REPORT, rate, who, wait)


def _exceeded(kind: CallKind, rate: Rate, who: str, wait: float) -> RateExceeded:
    return RateExceeded(
        f"too many {kind} calls: {who} may make {rate.per_second:g} a second, or {rate.burst} at once after "
        "a pause",
        setting=f"limits.{kind}_rate",
        wait=wait,
    )
