"""Report tokens are valid for one attempt, and cannot be made without the secret."""

import pytest

from job_tracker.domain.errors import NotAllowed
from job_tracker.reports import ReportTokens

TOKENS = ReportTokens(b"secret")


def test_a_token_names_its_attempt() -> None:
    assert TOKENS.read(TOKENS.issue(7, 2)) == (7, 2)
    assert TOKENS.issue(7, 2) == ReportTokens(b"secret").issue(7, 2)


def test_a_token_of_another_attempt_job_or_service_is_invalid() -> None:
    _, _, mac = TOKENS.issue(7, 2).split(".")
    for forged in (f"7.3.{mac}", f"8.2.{mac}", f"07.2.{mac}", ReportTokens(b"other").issue(7, 2)):
        with pytest.raises(NotAllowed, match="did not issue the report token"):
            TOKENS.read(forged)


@pytest.mark.parametrize(
    "token", ["", "7", "7.2", "7.2.x", "a.b.c", "7.2." + "x" * 99, "7.2.\n", "٧.2." + "x" * 43]
)
def test_a_malformed_token_is_refused(token: str) -> None:
    with pytest.raises(NotAllowed, match="token is malformed"):
        TOKENS.read(token)
