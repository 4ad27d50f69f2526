"""Turns: a place is kept while nothing waits, passed on otherwise, and never lost."""

import asyncio

import pytest

from job_tracker.reports.turns import Turns
from tests.support.patience import PATIENCE


class Crowd:
    """Users of places: the current holders, and the number of turns of each."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.holding: set[int] = set()
        self.had = [0] * 100
        self.changed = asyncio.Event()

    async def take_turns(self, number: int) -> None:
        while True:
            async with self.turns.one():
                self.had[number] += 1
                self.holding.add(number)
                self.changed.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.holding.discard(number)

    async def until_all_had(self, people: int, turns: int) -> None:
        while min(self.had[:people]) < turns:
            self.changed.clear()
            await self.changed.wait()


async def test_a_place_is_kept_while_nothing_waits() -> None:
    crowd = Crowd(Turns(2, seconds=0))
    tasks = [asyncio.create_task(crowd.take_turns(number)) for number in range(2)]
    await crowd.until_all_had(2, 1)
    await asyncio.sleep(0.05)
    assert crowd.had[:2] == [1, 1]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_turns_are_equal_and_places_bounded() -> None:
    crowd = Crowd(Turns(3, seconds=0.001))
    most = 0
    tasks = [asyncio.create_task(crowd.take_turns(number)) for number in range(20)]
    while min(crowd.had[:20]) < 5:
        crowd.changed.clear()
        await crowd.changed.wait()
        most = max(most, len(crowd.holding))
        assert max(crowd.had[:20]) - min(crowd.had[:20]) <= 2
    assert most == 3
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_turn_lasts_at_least_its_time() -> None:
    clock, turns = asyncio.get_running_loop().time, Turns(1, seconds=0.2)

    async def hold() -> float:
        began = clock()
        async with turns.one() as turn:
            await asyncio.Event().wait()
        assert turn.expired()
        return clock() - began

    first = asyncio.create_task(hold())
    await asyncio.sleep(0)
    async with turns.one():
        assert await first >= 0.2


async def test_a_cancelled_or_failed_user_frees_its_place() -> None:
    turns = Turns(1, seconds=60)

    async def fail() -> None:
        async with turns.one():
            raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        await fail()
    async with turns.one():
        waiting = asyncio.create_task(fail())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(PATIENCE), turns.one():
        pass
