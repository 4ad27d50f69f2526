import asyncio
import logging
from contextvars import ContextVar

import pytest

from job_tracker.common.backoff import Backoff
from job_tracker.common.tasks import SharedWork, background, end, repeat, within

subject: ContextVar[str] = ContextVar("subject", default="")


async def fail(error: Exception) -> None:
    raise error


async def test_an_error_that_ends_a_background_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    await asyncio.wait([background(fail(ValueError("broken")), "counting")])
    [record] = caplog.records
    assert record.levelno == logging.CRITICAL
    assert record.getMessage() == "background task 'counting' failed"
    assert "ValueError: broken" in caplog.text


async def test_an_expected_error_and_a_cancel_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    await asyncio.wait([background(fail(ValueError()), "counting", expected=(ValueError,))])
    await end(background(asyncio.Event().wait(), "waiting"))
    assert not caplog.records


async def test_a_detached_task_has_a_context_of_its_own() -> None:
    async def seen() -> str:
        return subject.get()

    subject.set("job 1")
    assert await background(seen(), "attached") == "job 1"
    assert await background(seen(), "detached", detached=True) == ""


async def test_the_end_of_tasks_waits_for_their_cleanup_and_drops_their_errors() -> None:
    cleaned = False

    async def work() -> None:
        nonlocal cleaned
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned = True
            raise ValueError

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await end(task)
    assert cleaned
    await end()


async def test_a_step_is_repeated_after_errors_and_an_error_is_logged_once_in_a_row(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = [OSError("away"), OSError("away"), None, OSError("away"), KeyError("bug")]
    done = asyncio.Event()

    async def step() -> None:
        if not errors:
            done.set()
            await asyncio.Event().wait()
        if (error := errors.pop(0)) is not None:
            raise error

    task = asyncio.create_task(
        repeat(step, Backoff(0.001, 0.001), failure="the step broke", expected=OSError)
    )
    await done.wait()
    await end(task)
    assert [record.getMessage() for record in caplog.records] == [
        "the step broke: away",
        "the step broke: away",
        "the step broke: 'bug'",
    ]
    assert [bool(record.exc_info) for record in caplog.records] == [False, False, True]


async def test_callers_with_one_key_share_a_task_that_outlives_them() -> None:
    work: SharedWork[str, int] = SharedWork()
    begun, go_on = 0, asyncio.Event()

    async def count() -> int:
        nonlocal begun
        begun += 1
        await go_on.wait()
        return begun

    first, second = (asyncio.create_task(work.do("key", count, "count")) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "key" in work
    await end(first)
    go_on.set()
    assert await second == 1
    assert "key" not in work
    assert await work.do("key", count, "count") == 2


async def test_shared_work_is_ended_on_close_and_its_errors_reach_those_who_wait() -> None:
    work: SharedWork[str, None] = SharedWork()
    task = work.begin("key", lambda: fail(ValueError("broken")), "fail")
    with pytest.raises(ValueError, match="broken"):
        await work.wait()
    assert task.done()

    async def wait() -> None:
        await asyncio.Event().wait()

    task = work.begin("key", wait, "wait")
    await work.close()
    assert task.cancelled()


async def test_tasks_that_are_not_done_in_time_are_cancelled() -> None:
    done, endless = asyncio.create_task(asyncio.sleep(0)), asyncio.create_task(asyncio.sleep(3600))
    await within(0.01, [done, endless])
    assert (done.cancelled(), endless.cancelled()) == (False, True)
