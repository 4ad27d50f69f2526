"""Times, durations, sizes and numbers have units, and are short."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from training_service.web import showing


def test_a_time_is_an_element_in_utc_which_the_page_shows_in_the_readers_zone() -> None:
    at = datetime(2026, 11, 24, 13, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    assert showing.time(at) == ('<time datetime="2026-11-24T12:00:05.000Z">2026-11-24 12:00:05 UTC</time>')
    assert showing.time(None) == "–"
    assert "12:00:00" in showing.time(datetime(2026, 11, 24, 12, tzinfo=UTC))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (-1, "0 ms"),
        (0.25, "250 ms"),
        (1, "1.0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3 * 3600 + 20 * 60 + 5, "3 h 20 min"),
        (86400 * 12 + 60, "12 d"),
        (timedelta(hours=1), "1 h"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float | timedelta | None, text: str) -> None:
    assert showing.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "–"), (None, "–"), (1, "1 B"), (1500, "1.5 kB"), (10**18, "1e+03 PB")]
)
def test_a_size_has_a_unit(number: int | None, text: str) -> None:
    assert showing.size(number) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (1234567, "1\u202f234\u202f567"),
        (0.123456, "0.1235"),
        (43123.4, "43\u202f123"),
        (-98765.4, "-98\u202f765"),
        (-9.876541e14 + 0.5, "-987\u202f654\u202f100\u202f000\u202f000"),
        (float("nan"), "NaN"),
        (float("inf"), "∞"),
        (float("-inf"), "−∞"),
    ],
)
def test_a_number_has_four_digits_and_each_float_a_text(value: float | None, text: str) -> None:
    assert showing.number(value) == text


def test_a_share_of_nothing_is_not_a_number() -> None:
    assert showing.share(1, 0) == "–"
    assert showing.share(1, 4) == "25 %"
