"""Attempts that are repeated, and tasks that are given a time."""

import asyncio

import pytest

from job_tracker.backends.shared.shared_work import NotYet, repeated, within


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


async def test_tasks_that_are_not_done_in_time_are_cancelled() -> None:
    done, endless = asyncio.create_task(asyncio.sleep(0)), asyncio.create_task(asyncio.sleep(3600))
    await within(0.01, [done, endless])
    assert (done.cancelled(), endless.cancelled()) == (False, True)
