"""Learned durations: the narrowest history with enough runs, bounded memory, and durations from callers."""

import json

import pytest

from job_tracker.scheduling.durations import ENOUGH, Kind, RunTimes
from job_tracker.scheduling.model import Expected

KIND = Kind("vision", "resnet", 4)


def learned(kind: Kind, *seconds: float) -> RunTimes:
    times = RunTimes()
    for each in seconds:
        times.add(kind, each)
    return times


def test_a_kind_without_history_stays_unknown() -> None:
    assert RunTimes().expected(KIND) is None
    assert learned(KIND, 10, 20).expected(KIND) is None
    assert learned(Kind("vision", "bert", 4), *range(1, 100)).expected(KIND) is None


def test_the_median_and_nine_in_ten_come_from_the_history_of_the_kind() -> None:
    assert learned(KIND, *range(1, 100)).expected(KIND) == Expected(median=50, high=90)


@pytest.mark.parametrize("other", [Kind("vision", "resnet", 8), Kind("speech", "resnet", 4)])
def test_a_kind_with_few_runs_falls_back_to_wider_history(other: Kind) -> None:
    times = learned(other, *[100.0] * ENOUGH)
    times.add(KIND, 1.0)
    assert times.expected(KIND) == Expected(median=100, high=100)


def test_the_size_counts_as_soon_as_it_has_enough_runs() -> None:
    times = learned(Kind("vision", "resnet", 8), *[100.0] * 50)
    for _ in range(ENOUGH):
        times.add(KIND, 1.0)
    assert times.expected(KIND) == Expected(median=1, high=1)


def test_what_the_caller_says_wins_but_nine_in_ten_may_take_as_long_as_before() -> None:
    times = learned(KIND, *range(1, 100))
    assert times.expected(KIND, given=30) == Expected(median=30, high=90)
    assert times.expected(KIND, given=300) == Expected(median=300, high=300)
    assert RunTimes().expected(KIND, given=30) == Expected(median=30, high=30)


def test_a_deadline_bounds_what_is_known_and_is_all_that_is_known_otherwise() -> None:
    times = learned(KIND, *range(1, 100))
    assert times.expected(KIND, deadline=70) == Expected(median=50, high=70)
    assert times.expected(KIND, given=90, deadline=40) == Expected(median=40, high=40)
    assert RunTimes().expected(KIND, deadline=40) == Expected(median=40, high=40)


def test_only_the_last_run_times_of_the_last_used_keys_are_kept() -> None:
    times = RunTimes(kept=5, most_keys=6)
    for size in range(1, 100):
        for seconds in range(20):
            times.add(Kind("p", "a", size), seconds)
    assert len(times) == 6
    newest = Kind("p", "a", 99).keys[0]
    assert json.loads(times.text(newest)) == [15, 16, 17, 18, 19]


def test_each_key_can_be_stored_as_text_and_restored() -> None:
    times = learned(KIND, *range(1, 100))
    again = RunTimes()
    for key in times.keys():  # noqa: SIM118  # not a mapping
        assert again.restore(key, times.text(key))
    assert again.expected(KIND) == times.expected(KIND)
    assert times.add(KIND, 1234.56789) == KIND.keys
    assert times.text(KIND.keys[0]).endswith(",1235.0]")


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "{}", "[]", '["1"]', "[true]", "[-1]", "[NaN]", "[Infinity]", f"[1{'0' * 400}]"],
)
def test_a_text_that_is_no_list_of_run_times_changes_nothing(text: str) -> None:
    times = learned(KIND, *[5.0] * ENOUGH)
    assert not times.restore(KIND.keys[0], text)
    assert times.expected(KIND) == Expected(median=5, high=5)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_run_time_that_a_clock_has_spoiled_is_ignored(seconds: float) -> None:
    times = RunTimes()
    assert times.add(KIND, seconds) == ()
    assert len(times) == 0
