"""The contract of Backend: logs."""

import asyncio
import time
from datetime import timedelta

import pytest

from job_tracker.domain.errors import LogsNotFound
from job_tracker.domain.group import GroupRef
from job_tracker.logs.records import TIME, records_of
from job_tracker.logs.writing import time_at
from tests.support.backends import World, printed, seen, text_of
from tests.support.jobs import NOON, job

GRACE = timedelta(seconds=5)


async def test_a_log_is_read_during_the_group_s_life_and_after_it(world: World) -> None:
    backend = world.open()
    await backend.launch(job({"PRINT": "one two", "RUN_SECONDS": "forever"}))
    assert await printed(backend, job().group) == "one two\n"
    assert await text_of(backend.logs(job().group, 0)) == "one two\n"
    await backend.stop(job().group, GRACE)
    assert await text_of(backend.logs(job().group, 0)) == "one two\n"
    assert await text_of(world.open().logs(job().group, 0)) == "one two\n"


async def test_following_ends_with_the_rank(world: World) -> None:
    backend = world.open()
    await backend.launch(job({"PRINT": "hello", "RUN_SECONDS": "0.3"}, instances=2))
    logs = [text_of(backend.logs(job().group, rank, follow=True)) for rank in (0, 1, 1)]
    assert await asyncio.gather(*logs) == ["hello\n"] * 3


async def test_following_an_ended_group_reads_it_and_ends(world: World) -> None:
    backend = world.open()
    await backend.launch(job({"PRINT": "hello"}))
    await seen(backend, job().group, lambda o: o.has_ended)
    assert await text_of(backend.logs(job().group, 0, follow=True)) == "hello\n"
    await backend.stop(job().group, GRACE)
    assert await text_of(backend.logs(job().group, 0, follow=True)) == "hello\n"


@pytest.mark.parametrize(("lines", "expected"), [(0, ""), (1, "hello\n"), (5, "hello\n")])
async def test_tail_lines_limits_the_lines(world: World, lines: int, expected: str) -> None:
    backend = world.open()
    await backend.launch(job({"PRINT": "hello"}))
    await seen(backend, job().group, lambda o: o.has_ended)
    assert await text_of(backend.logs(job().group, 0, tail_lines=lines)) == expected


async def test_an_unknown_log_is_not_found(world: World) -> None:
    backend = world.open()
    await backend.launch(job({"RUN_SECONDS": "forever"}))
    for group, rank in ((GroupRef("unknown-7", 7, 1), 0), (job().group, 1)):
        with pytest.raises(LogsNotFound):
            await text_of(backend.logs(group, rank))


async def test_the_log_of_a_forgotten_group_is_not_found(world: World) -> None:
    backend = world.open()
    await backend.launch(job({"PRINT": "hello"}))
    await backend.stop(job().group, GRACE)
    for _ in range(2):
        await backend.sweep(NOON, [job().group])
    with pytest.raises(LogsNotFound):
        await text_of(backend.logs(job().group, 0))


@pytest.mark.parametrize("kept", [False, True])
async def test_every_attempt_has_a_separate_log(world: World, kept: bool) -> None:
    backend = world.open()
    first, second = (
        job({"PRINT": f"attempt {attempt}", "RUN_SECONDS": "forever"}, attempt=attempt) for attempt in (1, 2)
    )
    await backend.launch(first)
    await printed(backend, first.group)
    await backend.stop(first.group, GRACE, NOON if kept else None)
    await backend.launch(second)
    assert await printed(backend, second.group) == "attempt 2\n"
    for each in (backend, world.open()):
        # The log of an ended attempt ends, although its job continues.
        assert await text_of(each.logs(first.group, 0, follow=True)) == "attempt 1\n"
        assert await text_of(each.logs(second.group, 0)) == "attempt 2\n"
    await backend.stop(second.group, GRACE)
    await backend.sweep(NOON)
    await backend.sweep(NOON, [first.group])
    assert await text_of(backend.logs(second.group, 0)) == "attempt 2\n"


async def test_lines_have_times_and_reading_can_continue_after_any_of_them(world: World) -> None:
    backend = world.open()
    before = time_at(time.time_ns())
    await backend.launch(job({"PRINT": "one\ntwo", "RUN_SECONDS": "forever"}))
    await printed(backend, job().group, lines=2)
    for _ in ("live", "stopped"):
        pieces = [piece async for piece in backend.logs(job().group, 0)]
        first, second = records_of(b"".join(pieces))
        assert before < first[:TIME] < second[:TIME] < time_at(time.time_ns())
        assert await text_of(backend.logs(job().group, 0, after=first[:TIME])) == "two\n"
        assert await text_of(backend.logs(job().group, 0, after=second[:TIME])) == ""
        assert await text_of(backend.logs(job().group, 0, after=before, tail_lines=1)) == "two\n"
        await backend.stop(job().group, GRACE)


async def test_stopped_groups_wait_in_the_spool_until_they_are_dropped(world: World) -> None:
    backend = world.open()
    first, second = (job({"PRINT": "hello"}, attempt=attempt) for attempt in (1, 2))
    for each in (first, second):
        await backend.launch(each)
        await seen(backend, each.group, lambda o: o.has_ended)
    spool = world.spool()
    assert await spool.waiting() == []
    for each in (first, second):
        await backend.stop(each.group, GRACE)
    assert set(await world.spool().waiting()) == {first.group, second.group}
    for _ in range(2):
        await spool.drop(first.group)
    assert await spool.waiting() == [second.group]
    with pytest.raises(LogsNotFound):
        await text_of(backend.logs(first.group, 0))
    assert await text_of(backend.logs(second.group, 0)) == "hello\n"


async def test_kept_objects_outlive_the_logs(world: World) -> None:
    backend = world.open()
    await backend.launch(job({"PRINT": "hello"}))
    await seen(backend, job().group, lambda o: o.has_ended)
    await backend.stop(job().group, GRACE, NOON + timedelta(days=1))
    await world.spool().drop(job().group)
    assert await world.kept() == {job().group.name}
