"""Repeated attempts."""

import pytest

from job_tracker.backends.shared.retries import NotYet, repeated


async def test_an_attempt_is_repeated_until_it_succeeds() -> None:
    failures = [NotYet("one"), NotYet("two")]

    async def attempt() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert await repeated(attempt, 60, 0) == "done"


async def test_an_attempt_that_does_not_succeed_in_time_raises_its_last_error() -> None:
    async def attempt() -> None:
        raise NotYet("still there")

    with pytest.raises(NotYet, match="still there"):
        await repeated(attempt, -1, 0)
