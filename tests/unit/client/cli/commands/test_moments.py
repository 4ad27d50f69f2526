"""The times that options accept."""

from datetime import UTC, datetime, timedelta

import pytest
import typer

from training_service.client.cli.commands.moments import moment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T12:00+01:00", datetime(2026, 1, 31, 11, tzinfo=UTC)),
        ("2026-01-31T12:00:30Z", datetime(2026, 1, 31, 12, 0, 30, tzinfo=UTC)),
        ("2026-01-31", datetime(2026, 1, 31).astimezone(UTC)),
    ],
)
def test_a_time_may_be_absolute(text: str, expected: datetime) -> None:
    assert moment(text) == expected


def test_a_time_may_be_how_long_ago_it_was() -> None:
    before = datetime.now(UTC)
    found = moment("1.5h")
    assert before <= found + timedelta(hours=1.5) <= datetime.now(UTC)


@pytest.mark.parametrize("text", ["yesterday", "", "-1d", "99999d", "0001-01-01T00:00+14:00"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time; write 2h or 7d ago"):
        moment(text)
