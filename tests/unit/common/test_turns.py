"""Fair turns: their number, their order, and cancelled calls."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from job_tracker.common.turns import FairTurns


class Row:
    """Callers that wait for turns, and the order in which they got them."""

    def __init__(self, turns: FairTurns) -> None:
        self.turns = turns
        self.served: list[str] = []
        self.waiting: list[asyncio.Task[None]] = []

    async def ask(self, *callers: str) -> None:
        """Let each caller ask for a turn; return when all free turns are taken."""
        for caller in callers:
            self.waiting.append(asyncio.create_task(self._take(caller)))
        await settled()

    async def end(self, caller: str) -> None:
        """End one turn of this caller."""
        self.turns.give(caller)
        await settled()

    async def _take(self, caller: str) -> None:
        await self.turns.take(caller)
        self.served.append(caller)


async def settled() -> None:
    """Let all tasks run until they wait: each step after a future takes one round of the loop."""
    for _ in range(5):
        await asyncio.sleep(0)


RowFor = Callable[[int, int], Row]


@pytest.fixture
async def row_for() -> AsyncIterator[RowFor]:
    """A function that makes rows. At the end, calls that still wait are cancelled."""
    rows: list[Row] = []

    def made(at_once: int, for_one: int) -> Row:
        rows.append(Row(FairTurns(at_once, for_one)))
        return rows[-1]

    yield made
    for task in (task for row in rows for task in row.waiting):
        task.cancel()
        await asyncio.wait([task])


async def served(row: Row, asking: str) -> str:
    """Return the callers in the order in which they got turns, if turns end in the order of their start."""
    await row.ask(*asking)
    ended = 0
    while ended < len(row.served):
        await row.end(row.served[ended])
        ended += 1
    return "".join(row.served)


async def test_the_number_of_turns_is_limited(row_for: RowFor) -> None:
    row = row_for(4, 3)
    await row.ask(*"abcdefg")
    assert row.served == list("abcd")
    await row.end("b")
    assert row.served == list("abcde")


async def test_one_caller_never_has_all_turns(row_for: RowFor) -> None:
    row = row_for(4, 3)
    await row.ask(*"aaaaaaaa")
    assert row.served == list("aaa")
    await row.ask("b")
    assert row.served == list("aaab")


@pytest.mark.parametrize(
    ("asking", "order"),
    [
        ("aaaaaaaab", "aabaaaaaa"),
        ("aaaaaabbbbbbcc", "aabacbacbababb"),
        ("ab" * 3, "ababab"),
        ("a", "a"),
    ],
)
async def test_waiting_callers_alternate_however_many_calls_one_has_sent(
    row_for: RowFor, asking: str, order: str
) -> None:
    assert await served(row_for(2, 2), asking) == order


async def test_a_cancelled_call_takes_no_turn(row_for: RowFor) -> None:
    row = row_for(1, 1)
    await row.ask(*"abc")
    row.waiting[1].cancel()
    await settled()
    assert row.turns.length == 2
    await row.end("a")
    assert row.served == list("ac")
    await row.end("c")
    assert row.turns.length == 0


async def test_a_call_that_is_cancelled_as_it_gets_its_turn_returns_it(row_for: RowFor) -> None:
    row = row_for(1, 1)
    await row.ask(*"abc")
    row.turns.give("a")  # "b" is next, and has not run since
    row.waiting[1].cancel()
    await settled()
    assert row.served == list("ac")
    await row.end("c")
    assert row.turns.length == 0


async def test_a_turn_skips_a_call_that_is_cancelled_at_the_same_time(
    row_for: RowFor,
) -> None:
    row = row_for(1, 1)
    await row.ask(*"abbc")
    row.waiting[1].cancel()
    row.turns.give("a")  # the first "b" has not run since
    await settled()
    assert row.served == list("ab")
    await row.end("b")
    await row.end("c")
    assert row.served == list("abc")
    assert row.turns.length == 0


async def test_a_caller_at_its_limit_waits_for_its_own_turns_and_others_for_the_caller_with_the_most(
    row_for: RowFor,
) -> None:
    row = row_for(4, 2)
    await row.ask("a", "a", "b", "b")
    assert not row.turns.wanted()
    await row.ask("b")
    assert row.turns.wanted() == {"b": 1}
    await row.ask("c")
    assert row.turns.wanted() == {"b": 1, "a": 1}
    await row.end("a")
    assert row.turns.wanted() == {"b": 1}
