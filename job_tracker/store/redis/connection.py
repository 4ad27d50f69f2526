"""The edge to the server: every call bounded in time, and its failures in the domain's words.

Calls that wait together travel together, so that many callers share one round trip. Nothing is tried
twice: a call that got no answer may have been done, and the one who asked knows whether to ask again.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from job_tracker.common.tasks import background
from job_tracker.domain.errors import StoreRefused, StoreUnavailable
from job_tracker.store.redis import keys
from job_tracker.store.redis.scripts import Script

# While one batch is under way the next gathers; a list that takes long does not hold up all others.
_LARGEST_BATCH, _BATCHES = 128, 4


@dataclass(frozen=True, slots=True)
class Address:
    """Which store: a server, and the prefix of its keys there."""

    url: str
    prefix: str = "training-service"

    def __str__(self) -> str:
        """As people may see it: without the password."""
        parts = urlsplit(self.url)
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return f"{place} (prefix {self.prefix})"


@dataclass(frozen=True, slots=True)
class _Call:
    script: Script
    arguments: tuple[str | int, ...]
    done: asyncio.Future[list[Any]]


class Connection:
    """Runs scripts on the server."""

    def __init__(self, address: Address, answer_seconds: float) -> None:
        """Connects with the first call. Raises StoreRefused for a URL that is none."""
        self.address = address
        self.answer_seconds = answer_seconds
        self.store_id = ""
        self._meta = keys.meta(address.prefix)
        self._waiting: deque[_Call] = deque()
        self._batches: set[asyncio.Task[None]] = set()
        try:
            self.client = Redis.from_url(
                address.url,
                socket_timeout=answer_seconds,
                socket_connect_timeout=answer_seconds,
                retry=Retry(NoBackoff(), 0),
                protocol=2,  # which every compatible server speaks
                client_name="training-service",
            )
        except ValueError as error:
            raise StoreRefused(f"store.url: {error}") from None

    async def run(self, script: Script, *arguments: str | int) -> list[Any]:
        """What the script returns, for the store that was opened. Raises StoreUnavailable.

        That is after twice `answer_seconds` at most: a batch that gets no answer fails with all that
        wait behind it. A caller that goes away does not undo what may be done by then.
        """
        done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(script, (self.store_id, *arguments), done))
        if len(self._batches) < _BATCHES:
            batch = background(self._send(), "calls to Redis", detached=True)
            self._batches.add(batch)
        answer = await done
        if answer[0] == b"lost":
            raise StoreUnavailable(
                f"the job store at {self.address} has lost its data: it is not the one that was opened. "
                "Nothing is written to it. Restore its data; or start the service anew, with an empty store"
            )
        return answer

    async def evaluate(self, script: Script, *arguments: str | int) -> list[Any]:
        """What the script returns, whatever the store. Raises what the client library does."""
        call: Any = self.client.eval  # the library's types are those of its synchronous half
        answer: list[Any] = await call(script.text, 1, self._meta, *arguments)
        return answer

    async def close(self) -> None:
        """Finish what was asked for, and let go of every connection."""
        while self._batches:
            await asyncio.wait(self._batches)
        await self.client.aclose()
        await self.client.connection_pool.disconnect()

    async def _send(self) -> None:
        """Send what waits, until nothing does."""
        while self._waiting:
            calls = [self._waiting.popleft() for _ in range(min(len(self._waiting), _LARGEST_BATCH))]
            try:
                async with asyncio.timeout(self.answer_seconds):
                    answers = await self._answers(calls)
            except Exception as error:  # whatever it is: nobody may wait for ever
                answers = [error] * (len(calls) + len(self._waiting))
                calls += self._waiting
                self._waiting.clear()
            for call, answer in zip(calls, answers, strict=True):
                self._settle(call, answer)
        # Before anything else can run, so that a call never relies on a batch that has ended.
        self._batches.discard(cast(asyncio.Task[None], asyncio.current_task()))

    async def _answers(self, calls: list[_Call]) -> list[Any]:
        """An answer or an error for each call."""
        async with self.client.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.evalsha(call.script.digest, 1, self._meta, *call.arguments)
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        for index, call in enumerate(calls):
            if isinstance(answers[index], NoScriptError):  # the server has just started: nothing has run
                try:
                    answers[index] = await self.evaluate(call.script, *call.arguments)
                except RedisError as error:
                    answers[index] = error
        return answers

    def _settle(self, call: _Call, answer: Any) -> None:
        if call.done.done():
            return  # the caller has gone away
        if isinstance(answer, Exception):
            how = "refuses" if isinstance(answer, ResponseError) else "does not answer"
            error = StoreUnavailable(f"the job store at {self.address} {how}: {explain(answer)}")
            error.__cause__ = answer
            call.done.set_exception(error)
        else:
            call.done.set_result(answer)


def explain(error: Exception) -> str:
    """One line about a failure of the connection or the server."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return " ".join(str(error).split()) or type(error).__name__
