"""Bounds answers that are large: gRPC keeps each until its client has read it, which may be never."""

import asyncio

from job_tracker.callers import FairTurns, caller


class LargeAnswers:
    """Places for large answers, each taken from before the answer is made until it has been sent."""

    def __init__(self, places: int, for_one: int, seconds: float) -> None:
        """One caller has at most `for_one` places. A call that holds one for so many seconds is cancelled."""
        self._places = FairTurns(places, for_one)
        self._seconds = seconds

    async def take_place(self) -> None:
        """Wait for a place, for the call that runs in this task; the task lasts until its answer is sent."""
        who = caller.get()
        await self._places.take(who)
        task = asyncio.current_task()
        assert task is not None
        limit = asyncio.get_running_loop().call_later(self._seconds, task.cancel)

        def free(_: asyncio.Task[object]) -> None:
            limit.cancel()
            self._places.give(who)

        task.add_done_callback(free)
