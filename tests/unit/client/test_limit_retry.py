"""A call that a limit refused is repeated when the service says, within its own time."""

import random

import pytest

from training_service.client.errors import ResourceExhausted
from training_service.client.limit_retry import LimitRetry


def test_the_pause_is_at_least_as_long_as_the_service_says() -> None:
    retry = LimitRetry(1000)
    pauses = [retry.pause_after(ResourceExhausted("busy", 0.5)) for _ in range(20)]
    assert all(0.5 <= pause <= 0.5 * 16 for pause in pauses)


def test_further_tries_are_spread_over_a_longer_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda _, high: high)
    retry = LimitRetry(1000)
    assert [retry.pause_after(ResourceExhausted("busy", 1)) for _ in range(6)] == [2, 4, 8, 16, 16, 16]


def test_the_error_is_raised_if_the_time_does_not_suffice() -> None:
    with pytest.raises(ResourceExhausted, match="busy"):
        LimitRetry(30).pause_after(ResourceExhausted("busy", 60))
    assert LimitRetry(0).time_left() == 0


def test_the_pause_ends_before_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda _, high: high)
    assert LimitRetry(1000).pause_after(ResourceExhausted("busy", 600)) <= 1000


def test_without_a_time_the_error_is_raised() -> None:
    with pytest.raises(ResourceExhausted, match="full"):
        LimitRetry(1000).pause_after(ResourceExhausted("full"))
