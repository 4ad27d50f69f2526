"""The proof that a call carries."""

from typing import Any

import pytest

from job_tracker.domain.errors import NotAllowed
from training_service.auth.authenticator import bearer_token

SECRET = "tst_abcdefgh_" + "s" * 43


def test_the_token_follows_the_scheme() -> None:
    assert bearer_token([("x-project", "vision")]) is None
    for value in (f"Bearer {SECRET}", f"bearer {SECRET}", f"BEARER   {SECRET} "):
        assert bearer_token([("authorization", value)]) == SECRET


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ([SECRET], "the metadata authorization has another form; send 'Bearer TOKEN'"),
        ([f"Basic {SECRET}"], "the metadata authorization has another form; send 'Bearer TOKEN'"),
        ([""], "the metadata authorization has another form; send 'Bearer TOKEN'"),
        ([SECRET.encode()], "the metadata authorization has another form; send 'Bearer TOKEN'"),
        ([f"Bearer {SECRET}"] * 2, "the metadata authorization is given 2 times; send it once"),
        ([f"Bearer {SECRET}", "x"], "the metadata authorization is given 2 times; send it once"),
    ],
)
def test_other_forms_are_refused_without_a_quotation(sent: list[Any], problem: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        bearer_token([("authorization", value) for value in sent])
    assert str(refused.value) == problem
