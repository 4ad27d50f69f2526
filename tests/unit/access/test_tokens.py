"""The text of tokens."""

import re

import pytest

from job_tracker.access import tokens
from job_tracker.access.tokens import OPERATOR_ID, digest_of, id_of, new_token
from job_tracker.domain.access import is_token_name
from job_tracker.domain.errors import NotAllowed

FORM = "tst_abcdefgh_" + "s" * 43


def test_a_token_has_a_visible_id_and_256_random_bits() -> None:
    made = new_token()
    assert re.fullmatch(r"tst_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", made.text)
    assert len(made.text) == tokens.LENGTH
    assert id_of(made.text) == made.id
    assert made.digest == digest_of(made.text)
    assert len({new_token().text for _ in range(100)}) == 100


def test_the_text_is_not_in_its_representation() -> None:
    made = new_token()
    assert made.id in repr(made)
    assert made.text.split("_", 2)[2][:20] not in repr(made)
    assert "digest" not in repr(made)


def test_a_random_id_is_never_that_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(OPERATOR_ID + "abcdefgh")
    monkeypatch.setattr("secrets.choice", lambda _: next(drawn))
    assert new_token().id == "abcdefgh"


@pytest.mark.parametrize(
    "text",
    [
        *("", "tst_", "tst_abcdefgh_", "x" * tokens.LENGTH, "tst_ABCDEFGH_" + "x" * 43),
        *(FORM + "\n", FORM.upper(), FORM[:-1] + "é"),
    ],
)
def test_a_malformed_token_is_refused_without_a_quotation(text: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        id_of(text)
    assert str(refused.value) == tokens.REFUSED


@pytest.mark.parametrize("name", ["a", "ci", "alice@example.com", "a.b_c+d-e", "9", "x" * 64])
def test_names_of_tokens(name: str) -> None:
    assert is_token_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "operator", "a b", "a/b", "CN=alice", "spiffe://x", "-a", "a.", "x" * 65, "é", "a\n", "\x1b[2J"],
)
def test_no_token_can_pass_for_a_certificate_a_token_of_a_project_or_the_service(name: str) -> None:
    assert not is_token_name(name)
