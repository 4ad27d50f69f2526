"""Foreign text is safe to print."""

import pytest

from job_tracker.access.tokens import new_token
from job_tracker.common.printable import printable, quoted


def test_what_is_not_printable_is_escaped() -> None:
    assert printable("größe\n\x1b[31m\u202e") == "größe\\n\\x1b[31m\\u202e"


@pytest.mark.parametrize("around", ["{}", "Bearer {}", "{}\n", "{0} {0}", "x" * 40 + "{}"])
def test_a_quoted_text_has_no_secret_of_a_token(around: str) -> None:
    """A caller may have put the token into a wrong field, and messages are logged."""
    token = new_token()
    shown = quoted(around.format(token.text))
    assert not any(token.text[13:][start : start + 6] in shown for start in range(38))
    assert len(shown) <= 70


def test_other_quoted_texts_are_whole_up_to_a_length() -> None:
    assert quoted("tst_short") == "'tst_short'"
    assert quoted("x" * 60) == repr("x" * 60)
    assert quoted("x" * 61) == repr("x" * 57 + "...")
