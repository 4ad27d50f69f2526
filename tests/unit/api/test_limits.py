"""Limits on calls are counted by caller and kind of call, and name their settings."""

import pytest

from job_tracker.common.rates import Rate
from job_tracker.domain.call_kinds import CallKind
from job_tracker.domain.caller import Caller, Means
from job_tracker.domain.errors import RateExceeded
from tests.support.callers import caller_at
from training_service.api.limits import CallLimits

ALICE = Caller(name="alice", means=Means.TOKEN)
BOB = Caller(name="bob", means=Means.TOKEN)


def limits() -> CallLimits:
    return CallLimits({kind: Rate(0.001, 2, clock=lambda: 0.0) for kind in CallKind})


def test_the_calls_of_a_caller_are_counted_by_kind() -> None:
    calls = limits()
    for caller in (ALICE, BOB):
        for call in ("GetTrainingStatus", "Train"):
            calls.check(call, caller)
            calls.check(call, caller)
            with pytest.raises(RateExceeded):
                calls.check(call, caller)


def test_the_error_says_who_which_limit_and_when() -> None:
    calls = CallLimits({CallKind.SUBMIT: Rate(0.5, 1, clock=lambda: 0.0)})
    calls.check("Train", ALICE)
    with pytest.raises(RateExceeded) as caught:
        calls.check("Train", ALICE)
    assert str(caught.value) == (
        "too many submit calls: alice may make 0.5 a second, or 1 at once after a pause "
        "(limits.submit_rate); try again in 2.0 s"
    )
    assert caught.value.limit == "limits.submit_rate"
    assert caught.value.retry_after == pytest.approx(2)


def test_callers_without_a_name_are_counted_by_address() -> None:
    calls, here, there = limits(), caller_at("ipv4:192.0.2.1"), caller_at("ipv4:192.0.2.2")
    calls.check("GetTrainingStatus", here)
    calls.check("GetTrainingStatus", here)
    with pytest.raises(RateExceeded, match=r"^too many read calls: callers at ipv4:192\.0\.2\.1 may make"):
        calls.check("GetTrainingStatus", here)
    calls.check("GetTrainingStatus", there)


def test_callers_without_a_name_in_one_ipv6_network_are_counted_together() -> None:
    calls, here, there = limits(), caller_at("ipv6:2001:db8::1"), caller_at("ipv6:2001:db8:0:1::1")
    calls.check("GetTrainingStatus", here)
    calls.check("GetTrainingStatus", caller_at("ipv6:2001:db8::2"))
    with pytest.raises(RateExceeded, match=r"callers at ipv6:2001:db8::/64 may make"):
        calls.check("GetTrainingStatus", here)
    calls.check("GetTrainingStatus", there)


def test_reports_are_counted_by_attempt() -> None:
    calls = limits()
    for attempt in ((1, 1), (1, 2), (2, 1)):
        calls.check_report(*attempt)
        calls.check_report(*attempt)
    with pytest.raises(RateExceeded, match=r"attempt 2 of job 1 may make .* \(limits\.report_rate\)"):
        calls.check_report(1, 2)


def test_without_rates_any_number_of_calls_is_allowed() -> None:
    for calls in (CallLimits(), CallLimits(dict.fromkeys(CallKind))):
        for _ in range(1000):
            calls.check("GetTrainingStatus", ALICE)
            calls.check_report(1, 1)


def test_calls_that_are_refused_together_do_not_come_back_at_once() -> None:
    calls = CallLimits({CallKind.READ: Rate(10_000, 1, clock=lambda: 0.0)})
    calls.check("GetTrainingStatus", ALICE)
    with pytest.raises(RateExceeded) as caught:
        calls.check("GetTrainingStatus", ALICE)
    assert caught.value.retry_after == pytest.approx(0.1)
