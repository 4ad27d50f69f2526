"""Bounds answers that are large: gRPC keeps each until its client has read it, which may be never."""

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

_LOOKS = 10  # for calls to end, in the time that a place is left to a call
_SUPERVISOR = "_schedule_rpc_coro"


class Places:
    """Places for large answers, each held from before the answer is made until it has been sent.

    One caller has at most `for_one` of them. As long as no other call waits for a place, a client may pause
    as long as it likes. Where calls wait, those that have held a place for `seconds` are ended, the oldest
    first: their clients are told CANCELLED, which ours take as the advice to connect again.
    """

    def __init__(self, places: int, for_one: int, seconds: float) -> None:
        self._turns = FairTurns(places, for_one)
        self._seconds = seconds
        self._held: dict[asyncio.Task[Any], tuple[str, float]] = {}  # who, and since when; the oldest first
        self._is_looking = False

    async def take(self, caller: Caller) -> ExitStack:
        """Wait for a place, for the call that runs in this task; it is given back as the context ends."""
        who, loop, task = caller.key, asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        turn = self._turns.take(who)
        if not self._is_looking:
            self._is_looking = True
            loop.call_soon(self._look, loop, context=Context())  # what is logged there is of no one call
        await turn
        self._held[task] = who, loop.time()
        place = ExitStack()
        place.callback(self._give, task, who)
        return place

    async def take_until_sent(self, caller: Caller) -> None:
        """Wait for a place and hold it until this task is done, which is when the answer is sent."""
        place, task = await self.take(caller), asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: place.close())

    def _give(self, task: asyncio.Task[Any], who: str) -> None:
        self._held.pop(task, None)
        self._turns.give(who)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End calls that others have waited for long enough; again and again, while any wait."""
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
            log.info("%d calls are ended: their clients do not read, and others wait", len(ended))
            end_calls(ended)


def end_calls(handlers: Collection[asyncio.Task[Any]]) -> None:
    """End calls while they send: gRPC tells their clients CANCELLED, and forgets what it was to send.

    If only the handler were cancelled, gRPC would keep the message, and tell the client nothing, for as long
    as the client stays connected. It does so on behalf of a second task, which waits for the client to go
    away and which nothing but its own variables connects with the handler's.
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
        log.warning("gRPC keeps the answers of %d calls that were ended: it works otherwise", len(unfound))
