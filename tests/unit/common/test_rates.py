"""A rate bounds calls by key, over time and at once, with bounded memory."""

import math

import pytest

from job_tracker.common.rates import Rate


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def allowed(rate: Rate, key: str, calls: int) -> int:
    return sum(not rate.take(key) for _ in range(calls))


def test_a_key_may_make_a_burst_of_calls_and_then_the_rate(clock: Clock) -> None:
    rate = Rate(10, 5, clock=clock)
    assert allowed(rate, "ada", 8) == 5
    for _ in range(3):
        clock.now += 0.1
        assert allowed(rate, "ada", 3) == 1
    clock.now += 100
    assert allowed(rate, "ada", 8) == 5, "a bucket never holds more than the burst"


@pytest.mark.parametrize("burst", [1, 7])
def test_a_refused_call_is_allowed_after_the_wait_and_not_before(clock: Clock, burst: int) -> None:
    rate = Rate(4, burst, clock=clock)
    assert allowed(rate, "ada", burst) == burst
    wait = rate.take("ada")
    assert wait == pytest.approx(0.25)
    clock.now += wait - 0.001
    assert rate.take("ada") == pytest.approx(0.001)
    clock.now += 0.001
    assert not rate.take("ada")


def test_keys_do_not_affect_each_other(clock: Clock) -> None:
    rate = Rate(1, 2, clock=clock)
    assert allowed(rate, "ada", 100) == 2
    assert allowed(rate, "bob", 100) == 2


def test_a_call_that_is_given_back_does_not_count(clock: Clock) -> None:
    rate = Rate(1, 2, clock=clock)
    for _ in range(10):
        assert not rate.take("ada")
        rate.give_back("ada")
    assert allowed(rate, "ada", 10) == 2
    rate.give_back("an unknown key")


def test_over_a_long_time_no_more_calls_pass_than_the_rate_allows(clock: Clock) -> None:
    rate = Rate(3, 10, clock=clock)
    passed = 0
    for _ in range(10_000):
        clock.now += 0.013
        passed += allowed(rate, "ada", 1)
    assert math.isclose(passed, 10_000 * 0.013 * 3 + 10, abs_tol=2)


def test_keys_with_full_buckets_are_forgotten(clock: Clock) -> None:
    rate = Rate(10, 10, clock=clock)
    for number in range(100):
        rate.take(f"caller {number}")
    assert rate.remembered == 100
    for _ in range(2):
        clock.now += 1
        rate.take("ada")
    assert rate.remembered <= 2


def test_a_key_that_is_used_is_not_forgotten_with_the_others(clock: Clock) -> None:
    rate = Rate(10, 10, clock=clock)
    for _ in range(50):
        clock.now += 0.1
        allowed(rate, "ada", 10)
        assert rate.take("ada"), "the bucket stays empty"


def test_many_keys_use_bounded_memory(clock: Clock) -> None:
    rate = Rate(1, 1, clock=clock, most_keys=100)
    for number in range(10_000):
        assert not rate.take(number)
    assert rate.remembered <= 200
