"""Bounds answers that are large: gRPC keeps each until its client has read it, which may be never."""

import asyncio


class LargeAnswers:
    """Places for large answers, each taken from before the answer is made until it has been sent."""

    def __init__(self, places: int, seconds: float) -> None:
        """A call that holds a place for so many seconds is cancelled."""
        self._free = asyncio.Semaphore(places)
        self._seconds = seconds

    async def take_place(self) -> None:
        """Wait for a place, for the call that runs in this task; the task lasts until its answer is sent."""
        await self._free.acquire()
        task = asyncio.current_task()
        assert task is not None
        limit = asyncio.get_running_loop().call_later(self._seconds, task.cancel)

        def free(_: asyncio.Task[object]) -> None:
            limit.cancel()
            self._free.release()

        task.add_done_callback(free)
