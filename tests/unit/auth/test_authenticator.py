"""The proof that a call carries."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.caller import BUILT_IN, Caller
from job_tracker.domain.errors import NotAllowed, StoreUnavailable
from training_service.auth.authenticator import NotingRefusals, bearer_token
from training_service.auth.certificates import Identity

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
SECRET = "tst_abcdefgh_" + "s" * 43


def test_the_token_follows_the_scheme() -> None:
    assert bearer_token([("x-project", "vision")]) is None
    for value in (f"Bearer {SECRET}", f"bearer {SECRET}", f"BEARER   {SECRET} "):
        assert bearer_token([("authorization", value)]) == SECRET


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ([SECRET], "the metadata authorization does not have the form 'Bearer TOKEN'; send it in this form"),
        (
            [f"Basic {SECRET}"],
            "the metadata authorization does not have the form 'Bearer TOKEN'; send it in this form",
        ),
        ([""], "the metadata authorization does not have the form 'Bearer TOKEN'; send it in this form"),
        (
            [SECRET.encode()],
            "the metadata authorization does not have the form 'Bearer TOKEN'; send it in this form",
        ),
        ([f"Bearer {SECRET}"] * 2, "the metadata authorization is given 2 times; send it once"),
        ([f"Bearer {SECRET}", "x"], "the metadata authorization is given 2 times; send it once"),
    ],
)
def test_other_forms_are_refused_without_a_quotation(sent: list[Any], problem: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        bearer_token([("authorization", value) for value in sent])
    assert str(refused.value) == problem


class Refusing:
    """An authenticator that refuses every call with an error, or identifies the built-in caller."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def authenticate(self, *_: object) -> tuple[Caller, Identity | None]:
        if self._error is not None:
            raise self._error
        return BUILT_IN, None

    def refused(self, *_: object) -> None:
        raise AssertionError("no call is open")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, []),
        (StoreUnavailable("away"), []),
        (
            NotAllowed("the token is missing; send it"),
            [
                AuditEvent(
                    at=NOON, action="authenticate", outcome=Outcome.DENIED, detail="the token is missing"
                )
            ],
        ),
        (
            NotAllowed("the token x expired; ask", caller="ada", credential="abcdefgh"),
            [
                AuditEvent(
                    at=NOON,
                    action="authenticate",
                    outcome=Outcome.DENIED,
                    caller="ada",
                    credential="abcdefgh",
                    detail="the token x expired",
                )
            ],
        ),
    ],
)
async def test_callers_that_cannot_be_identified_are_noted(
    error: Exception | None, expected: list[AuditEvent]
) -> None:
    noted: list[AuditEvent] = []
    proofs = NotingRefusals(Refusing(error), noted.append, lambda: NOON)
    sent: Any = [("authorization", f"Bearer {SECRET}")]
    with pytest.raises(type(error)) if error else nullcontext():
        await proofs.authenticate(sent, "ipv4:192.0.2.1", cast(Any, None))
    assert noted == [replace(event, address="ipv4:192.0.2.1") for event in expected]
