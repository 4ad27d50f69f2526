"""The connection to the server. It limits the time of calls, and reports failures as StoreUnavailable.

Waiting calls are sent together, so that many callers share one round trip. A call without an answer is not
retried here: it may have taken effect, and only its caller knows whether to repeat it.
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

# Several batches may be under way at the same time, so that a slow list delays few other calls. If _BATCHES
# batches are under way, further calls wait, and are sent together in the next batch.
_LARGEST_BATCH, _BATCHES = 128, 4


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a store: a server, and the prefix of the store's keys."""

    url: str
    prefix: str = "training-service"

    def __str__(self) -> str:
        """Return the address without the user name and the password."""
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
        """Prepare the connection; the first call opens it. Raises StoreRefused for an invalid URL.

        `answer_seconds` is the longest time for an answer.
        """
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
                protocol=2,  # every compatible server supports it
                client_name="training-service",
            )
        except ValueError as error:
            raise StoreRefused(f"store.url: {error}") from None

    async def run(self, script: Script, *arguments: str | int) -> list[Any]:
        """Run the script for the opened store, and return its answer. Raises StoreUnavailable.

        Calls are sent in batches. If a batch gets no answer, its calls and all waiting calls fail. So a call
        takes at most twice `answer_seconds`, unless hundreds of calls wait. A cancelled call may still take
        effect.
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
                "Nothing is written to it. Restore its data; or restart the service, which then says how to "
                "start with the present store"
            )
        return answer

    async def evaluate(self, script: Script, *arguments: str | int) -> list[Any]:
        """Run the script with these arguments only: unlike `run`, this adds no id of the store.

        Raises the client library's errors.
        """
        call: Any = self.client.eval  # the library declares the types of its synchronous client
        answer: list[Any] = await call(script.text, 1, self._meta, *arguments)
        return answer

    async def close(self) -> None:
        """Finish the pending calls, and close all connections."""
        while self._batches:
            await asyncio.wait(self._batches)
        await self.client.aclose()
        await self.client.connection_pool.disconnect()

    async def _send(self) -> None:
        """Send the waiting calls, batch by batch, until none is left."""
        while self._waiting:
            calls = [self._waiting.popleft() for _ in range(min(len(self._waiting), _LARGEST_BATCH))]
            try:
                async with asyncio.timeout(self.answer_seconds):
                    answers = await self._answers(calls)
            except Exception as error:  # all errors, since the callers must not wait for ever
                answers = [error] * (len(calls) + len(self._waiting))
                calls += self._waiting
                self._waiting.clear()
            for call, answer in zip(calls, answers, strict=True):
                self._settle(call, answer)
        # There is no await between the last check of `_waiting` and this line. So no call that comes later
        # relies on this task.
        self._batches.discard(cast(asyncio.Task[None], asyncio.current_task()))

    async def _answers(self, calls: list[_Call]) -> list[Any]:
        """Return an answer or an error for each call."""
        async with self.client.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.evalsha(call.script.digest, 1, self._meta, *call.arguments)
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        for index, call in enumerate(calls):
            if isinstance(answers[index], NoScriptError):  # not run: the server does not know this script
                try:
                    answers[index] = await self.evaluate(call.script, *call.arguments)
                except RedisError as error:
                    answers[index] = error
        return answers

    def _settle(self, call: _Call, answer: Any) -> None:
        if call.done.done():
            return  # the caller was cancelled
        if isinstance(answer, Exception):
            how = "refuses" if isinstance(answer, ResponseError) else "does not answer"
            error = StoreUnavailable(f"the job store at {self.address} {how}: {explain(answer)}")
            error.__cause__ = answer
            call.done.set_exception(error)
        else:
            call.done.set_result(answer)


def explain(error: Exception) -> str:
    """Return a description of a failure of the connection or the server, in one line."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return " ".join(str(error).split()) or type(error).__name__
