"""Audit events, and their ids."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from job_tracker.common.log_context import request_id
from job_tracker.domain.audit import (
    LONGEST_DETAIL,
    LONGEST_TARGET,
    AuditEvent,
    Outcome,
    event_of,
    first_id_at,
)
from job_tracker.domain.caller import BUILT_IN, Means
from tests.support.jobs import NOON


def test_an_event_has_its_caller_and_the_id_of_the_call() -> None:
    caller = replace(BUILT_IN, name="ada", means=Means.TOKEN, credential="aaaaaaaa", address="ipv4:192.0.2.1")
    token = request_id.set("r-1")
    try:
        event = event_of(caller, "cancel", Outcome.DONE, NOON, project="vision", target="job 7", detail="x")
    finally:
        request_id.reset(token)
    assert event == AuditEvent(
        at=NOON,
        action="cancel",
        outcome=Outcome.DONE,
        caller="ada",
        means="token",
        credential="aaaaaaaa",
        address="ipv4:192.0.2.1",
        project="vision",
        target="job 7",
        detail="x",
        request_id="r-1",
    )


def test_long_texts_are_cut() -> None:
    event = event_of(BUILT_IN, "fetch", Outcome.READ, NOON, target="t" * 999, detail="d" * 999)
    assert (len(event.target), len(event.detail)) == (LONGEST_TARGET, LONGEST_DETAIL)


def test_the_lowest_id_at_a_time_is_in_microseconds_and_exact() -> None:
    moment = datetime(2026, 5, 4, 12, 0, 0, 123457, tzinfo=UTC)
    assert first_id_at(moment) == 1777896000123457
    assert first_id_at(moment + timedelta(microseconds=1)) == 1777896000123458
    assert first_id_at(datetime(1969, 1, 1, tzinfo=UTC)) == 0


def test_an_event_has_no_secret_of_a_token() -> None:
    secret = "S" * 43
    text = f"job 7, tst_abcdefgh_{secret}"
    event = event_of(BUILT_IN, "fetch", Outcome.READ, NOON, target=text, detail=text)
    assert (event.target, event.detail) == ("job 7, tst_abcdefgh_…", "job 7, tst_abcdefgh_…")
