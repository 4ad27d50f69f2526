"""The work queue: deduplication, one worker per key, and retries after failures."""

import asyncio
from datetime import timedelta

import pytest

from job_tracker.common.broadcast import Broadcast
from job_tracker.common.work_queue import QueueHealth, WorkQueue
from tests.support.patience import PATIENCE


async def run(queue: WorkQueue[str], until: asyncio.Event) -> None:
    working = asyncio.create_task(queue.run())
    await until.wait()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_a_key_has_one_worker_and_is_handled_again_if_added_meanwhile() -> None:
    handled: list[str] = []
    active = 0
    done = asyncio.Event()

    async def handle(key: str) -> None:
        nonlocal active
        active += 1
        assert active == 1
        handled.append(key)
        if len(handled) == 1:
            for _ in range(3):
                queue.add(key)
        await asyncio.sleep(0)
        active -= 1
        if len(handled) == 2:
            done.set()

    queue = WorkQueue[str](handle, workers=4)
    for _ in range(3):
        queue.add("a")
    await run(queue, done)
    assert handled == ["a", "a"]


async def test_a_failure_is_retried_and_stops_no_other_key() -> None:
    handled: list[str] = []
    done = asyncio.Event()

    async def handle(key: str) -> None:
        handled.append(key)
        if key == "bad" and handled.count("bad") < 3:
            raise RuntimeError("no")
        if handled.count("bad") == 3:
            done.set()

    queue = WorkQueue[str](handle, workers=1)
    queue.add("bad")
    queue.add("good")
    await run(queue, done)
    assert handled == ["bad", "good", "bad", "bad"]


async def test_a_worker_survives_the_cancel_of_a_task_that_its_handler_awaits() -> None:
    handled: list[str] = []
    done = asyncio.Event()

    async def handle(key: str) -> None:
        handled.append(key)
        if handled == ["bad"]:
            awaited = asyncio.get_running_loop().create_future()
            awaited.cancel()
            await awaited
        if handled.count("bad") == 2:
            done.set()

    queue = WorkQueue[str](handle, workers=1)
    queue.add("bad")
    queue.add("good")
    async with asyncio.timeout(PATIENCE):
        await run(queue, done)
    assert handled == ["bad", "good", "bad"]


async def test_a_key_is_handled_again_after_the_delay_of_its_handler() -> None:
    times: list[float] = []
    done = asyncio.Event()

    async def handle(key: str) -> timedelta | None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 2:
            done.set()
            return None
        return timedelta(seconds=0.05)

    queue = WorkQueue[str](handle, workers=1)
    queue.add("a")
    await run(queue, done)
    assert times[1] - times[0] >= 0.05


async def test_a_slow_subscriber_gets_the_last_value_of_each_key() -> None:
    feed = Broadcast[str, int]()
    with feed.subscribe() as everything, feed.subscribe("b") as of_b:
        for value in range(3):
            feed.publish("a", value)
            feed.publish("b", value * 10)
        assert [await anext(everything), await anext(everything)] == [("a", 2), ("b", 20)]
        assert await anext(of_b) == ("b", 20)
    feed.publish("a", 9)


async def test_a_batch_has_all_changes_and_waits_for_the_first() -> None:
    feed = Broadcast[str, int]()
    with feed.subscribe() as changes:
        for key, value in (("a", 1), ("b", 2), ("a", 3)):
            feed.publish(key, value)
        assert await changes.batch() == {"a": 3, "b": 2}
        batch = asyncio.create_task(changes.batch())
        await asyncio.sleep(0)
        feed.publish("c", 4)
        assert await batch == {"c": 4}


@pytest.mark.usefixtures("skipped_time")
async def test_a_delayed_key_is_handled_once_and_not_later_than_its_shortest_delay() -> None:
    worked: list[float] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def handle(key: str) -> None:
        worked.append(loop.time())
        done.set()

    queue: WorkQueue[str] = WorkQueue(handle, workers=1)
    running = asyncio.create_task(queue.run())
    started = loop.time()
    for delay in (10, 0.1, 5, 0.1):
        queue.add_within("key", timedelta(seconds=delay))
    await done.wait()
    assert worked[0] - started == pytest.approx(0.1)
    assert len(worked) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_queue_reports_its_load_and_its_failures() -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def handle(key: str) -> None:
        started.set()
        await may_end.wait()
        if queue.health.retries == 0:
            raise RuntimeError("no")
        if queue.health.depth == 0:
            at_the_end.append(queue.health)  # a moment later, the retry of "a" may wait
            done.set()

    at_the_end: list[QueueHealth] = []
    done = asyncio.Event()
    queue = WorkQueue[str](handle, workers=1)
    assert (queue.health.depth, queue.health.oldest_seconds, queue.health.longest_seconds) == (0, 0, 0)
    for key in ("a", "b", "c", "b"):
        queue.add(key)
    running = asyncio.create_task(run(queue, done))
    await started.wait()
    first = queue.health
    assert (first.depth, first.retries) == (2, 0)
    await asyncio.sleep(0.02)
    queue.add("b")  # the key still waits, and its age counts from the first time
    later = queue.health
    assert later.oldest_seconds >= first.oldest_seconds + 0.02
    assert later.longest_seconds >= 0.02
    may_end.set()
    await running
    assert (at_the_end[0].depth, at_the_end[0].retries) == (0, 1)
