"""Logs of several ranks are merged by time, within a window for logs that grow."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_tracker.domain.errors import LogsNotFound
from job_tracker.logs.merging import merged
from job_tracker.logs.records import TIME, records_of, text_of
from job_tracker.logs.writing import time_at
from tests.support.logs import pieces_of, record, records, time
from tests.support.patience import PATIENCE

Logs = dict[int, AsyncGenerator[bytes, None]]


async def lines(logs: Logs, window: float | None = None) -> list[tuple[int, str]]:
    """Every record with its rank."""
    found = [(rank, records_of(piece)) async for rank, piece in merged(logs, window=window)]
    return [(rank, each[:TIME].decode()) for rank, run in found for each in run]


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=20), max_size=4),
)
def test_ended_logs_are_merged_completely_and_by_time(plan: Sequence[Sequence[tuple[int, bool]]]) -> None:
    logs: Logs = {}
    expected = []
    for rank, steps in enumerate(plan):
        pieces, at = [b""], 0
        for step, begins_piece in steps:
            at += 1 + step
            if begins_piece and pieces[-1]:
                pieces.append(b"")
            pieces[-1] += record("x", at)
            expected.append((time(at).decode(), rank))
        logs[rank] = pieces_of([piece for piece in pieces if piece])
    found = asyncio.run(lines(logs))
    assert [at for _, at in found] == sorted(at for at, _ in expected)
    assert sorted((at, rank) for rank, at in found) == sorted(expected)


async def test_consecutive_lines_of_one_rank_are_one_piece() -> None:
    logs = {0: pieces_of([records("a", "b", "c")]), 1: pieces_of([records("d", first=1.5)])}
    found = [(rank, text_of(piece)) async for rank, piece in merged(logs, window=None)]
    assert found == [(0, "a\nb\n"), (1, "d\n"), (0, "c\n")]


async def silent(until: asyncio.Event) -> AsyncGenerator[bytes, None]:
    await until.wait()
    yield record("at last", 100)


@pytest.mark.usefixtures("skipped_time")
async def test_a_silent_rank_delays_the_others_by_at_most_the_window() -> None:
    spoken = asyncio.Event()
    logs = {0: pieces_of([records("a"), records("b", first=1), records("c", first=2)]), 1: silent(spoken)}
    async with asyncio.timeout(PATIENCE):
        merging = merged(logs, window=0.2)
        started = asyncio.get_running_loop().time()
        assert [text_of((await anext(merging))[1]) for _ in "abc"] == ["a\n", "b\n", "c\n"]
        waited = asyncio.get_running_loop().time() - started
        assert waited == pytest.approx(0.2, abs=0.01), "one window for all that is old"
        spoken.set()
        assert await anext(merging) == (1, record("at last", 100))
        assert [each async for each in merging] == []


@pytest.mark.usefixtures("skipped_time")
async def test_a_line_within_the_window_is_put_in_order() -> None:
    spoken = asyncio.Event()
    logs = {0: pieces_of([records("a", first=200)]), 1: silent(spoken)}
    asyncio.get_running_loop().call_later(0.1, spoken.set)
    assert [rank for rank, _ in await lines(logs, window=5)] == [1, 0]


async def test_a_clock_that_is_ahead_does_not_extend_the_wait() -> None:
    tomorrow = time_at(4 * 10**18)
    logs = {0: pieces_of([tomorrow + b" F a\n"]), 1: silent(asyncio.Event())}
    merging = merged(logs, window=0.1)
    async with asyncio.timeout(PATIENCE):
        assert (await anext(merging))[0] == 0
    await merging.aclose()


async def test_a_failing_log_raises_and_closes_the_others() -> None:
    closed = []

    async def broken() -> AsyncGenerator[bytes, None]:
        yield records("a")
        raise LogsNotFound("gone")

    async def other() -> AsyncGenerator[bytes, None]:
        try:
            await asyncio.Event().wait()
            yield b""
        finally:
            closed.append(True)

    with pytest.raises(LogsNotFound, match="gone"):
        await lines({0: other(), 1: broken()}, window=0.1)
    assert closed == [True]


async def test_lines_without_a_time_are_passed_on() -> None:
    logs: Logs = {0: pieces_of([b"x" * 40 + b"\n"]), 1: pieces_of([b"short\n"])}
    found = [piece async for _, piece in merged(logs, window=0.01)]
    assert sorted(found) == [b"short\n", b"x" * 40 + b"\n"]
