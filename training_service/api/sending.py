"""Bounds the memory of large responses: gRPC keeps each until its client has read it, perhaps for ever."""

import asyncio
import gc
import logging
from collections.abc import Collection
from contextlib import ExitStack
from contextvars import Context
from typing import Any

from job_tracker.common.turns import FairTurns
from job_tracker.domain.caller import Caller

log = logging.getLogger(__name__)

_LOOKS = 10  # the number of checks within the time for which a call may keep its place
_SUPERVISOR = "_schedule_rpc_coro"


class Places:
    """Places for large responses. A call takes a place before it builds a response, and frees it once the
    response is sent.

    One caller has at most `for_one` places. While no other call waits for a place, a client may take any time
    to read its response. While calls wait, calls that have held a place for `seconds` are ended, the oldest
    first: for each waiting call, at most one call of the caller whose place the waiting call needs (see
    `FairTurns.wanted`). The clients of ended calls get CANCELLED, after which our clients reconnect.
    """

    def __init__(self, places: int, for_one: int, seconds: float) -> None:
        self._turns = FairTurns(places, for_one)
        self._seconds = seconds
        self._held: dict[asyncio.Task[Any], tuple[str, float]] = {}  # caller and start; the oldest first
        self._is_looking = False

    async def take(self, caller: Caller) -> ExitStack:
        """Wait for a place for the call in this task. Close the returned context to free the place."""
        who, loop, task = caller.key, asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        turn = self._turns.take(who)
        if not self._is_looking:
            self._is_looking = True
            loop.call_soon(self._look, loop, context=Context())  # without the log context of this call
        await turn
        self._held[task] = who, loop.time()
        place = ExitStack()
        place.callback(self._give, task, who)
        return place

    async def take_until_sent(self, caller: Caller) -> None:
        """Wait for a place. It is freed when this task ends, after the response has been sent."""
        place, task = await self.take(caller), asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: place.close())

    def _give(self, task: asyncio.Task[Any], who: str) -> None:
        self._held.pop(task, None)
        self._turns.give(who)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """While other calls wait, end calls that held a place for too long, and schedule the next check."""
        wanted = self._turns.wanted()
        self._is_looking = bool(wanted)
        if not wanted:
            return
        loop.call_later(self._seconds / _LOOKS, self._look, loop)
        ended = []
        for task, (who, since) in self._held.items():
            if since > loop.time() - self._seconds:
                break
            if wanted[who] > 0:
                wanted[who] -= 1
                ended.append(task)
        for task in ended:
            del self._held[task]
        if ended:
            log.info("ended %d calls: their clients do not read, and other calls wait", len(ended))
            end_calls(ended)


def end_calls(handlers: Collection[asyncio.Task[Any]]) -> None:
    """End calls while they send: their clients get CANCELLED, and gRPC frees the messages.

    Cancelling only the handler is not enough: gRPC would keep the message and the call as long as the client
    stays connected. A second task of gRPC waits for the client to disconnect, and must be cancelled, too.
    This task can only be found by the variables of its coroutine.
    """
    unfound = set(handlers)
    for task in asyncio.all_tasks():
        coroutine = task.get_coro()
        if getattr(coroutine, "__name__", "") == _SUPERVISOR:
            variables = (each for scope in gc.get_referents(coroutine) for each in gc.get_referents(scope))
            served = unfound.intersection(each for each in variables if isinstance(each, asyncio.Task))
            if served:
                task.cancel()
                unfound -= served
    for handler in handlers:
        handler.cancel()
    if unfound:
        log.warning("gRPC keeps the responses of %d ended calls: its internals have changed", len(unfound))
