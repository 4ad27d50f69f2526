"""What changes reaches everybody: those in this process at once, other replicas by pub/sub.

Messages of a channel are lost to those who are not connected. So whoever connects (again) is told of
all that may have changed: jobs that are live or at the head of the queue, and those somebody watches.
"""

import asyncio
import itertools
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from job_tracker.common.backoff import Backoff
from job_tracker.common.broadcast import Broadcast
from job_tracker.common.tasks import background
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.job import JobState
from job_tracker.store.jobs import Changes
from job_tracker.store.redis import keys
from job_tracker.store.redis.connection import Connection, explain

log = logging.getLogger(__name__)

_MESSAGE = re.compile(rf"(\d+) ({'|'.join(JobState)}) (\S+)", re.ASCII)
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 2.0
_CANCEL_SECONDS = 1.0


@dataclass(slots=True)
class Write:
    """A write of our own, by its token. Its message says nothing new unless the answer never came."""

    token: str
    told: bool = False
    heard: tuple[int, JobState] | None = None


class ChangeFeed:
    """The feed of this process, kept up with the store's channel."""

    def __init__(
        self, connection: Connection, catch_up: Callable[[], Awaitable[list[tuple[int, JobState]]]]
    ) -> None:
        """`catch_up` reads what those who missed messages should look at."""
        self.feed: Broadcast[int, JobState] = Broadcast()
        self.resignations: Broadcast[str, None] = Broadcast()
        self._connection = connection
        self._catch_up = catch_up
        self._resignations = keys.resignations(connection.address.prefix)
        self._writes: dict[str, Write] = {}
        self._tokens = (f"{uuid.uuid4().hex}-{number}" for number in itertools.count())
        self._listener: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen; from then on nothing is missed. Raises what the client library does."""
        channel = await self._subscribe()
        self._listener = background(self._listen(channel), "changes in Redis", detached=True)

    async def close(self) -> None:
        """Listen no more."""
        while self._listener is not None and not self._listener.done():
            self._listener.cancel()
            # Again, if need be: the library calls asyncio.wait_for, which before Python 3.12 loses a cancel
            # that comes as the call ends (https://github.com/python/cpython/issues/86296).
            await asyncio.wait([self._listener], timeout=_CANCEL_SECONDS)

    @contextmanager
    def writing(self) -> Iterator[Write]:
        """Around a write that publishes its token: who calls `tell` inside is not told again by the message.

        If no answer comes, also since the caller has gone away, the message counts after all.
        """
        write = Write(next(self._tokens))
        self._writes[write.token] = write
        try:
            yield write
        finally:
            if not write.told:
                del self._writes[write.token]
                if write.heard is not None:
                    self.feed.publish(*write.heard)

    def tell(self, write: Write, job_id: int, state: JobState, by: Changes | None = None) -> None:
        """Tell our own at once, without waiting for the message; but not `by`, whose change it is."""
        write.told = True
        if write.heard is not None:
            del self._writes[write.token]
        self.feed.publish(job_id, state, by=by)

    async def _listen(self, channel: PubSub) -> None:
        while True:
            try:
                await self._follow(channel)
            except Exception as error:  # whatever it is: without this task, no other service is heard
                log.warning("%s: changes are not heard: %s", self._connection.address, explain(error))
            finally:
                await _let_go(channel)
            channel = await self._subscribe_again()
            log.info("%s: changes are heard again", self._connection.address)

    async def _subscribe_again(self) -> PubSub:
        """Listen again, however long that takes, and tell of all that may have been missed."""
        backoff, said = Backoff(_FIRST_DELAY, _LONGEST_DELAY), ""
        while True:
            await asyncio.sleep(backoff.next())
            try:
                channel = await self._subscribe()
            except (RedisError, OSError, TimeoutError):
                continue
            try:
                missed = await self._catch_up()
            except BaseException as error:
                await _let_go(channel)
                if not isinstance(error, StoreUnavailable):
                    raise
                if str(error) != said:
                    log.warning("%s", said := str(error))
                continue
            for job_id, state in missed:
                self.feed.publish(job_id, state)
            self.resignations.publish("unknown", None)
            return channel

    async def _subscribe(self) -> PubSub:
        # What was sent before is not going to arrive any more.
        for token in [write.token for write in self._writes.values() if write.told]:
            del self._writes[token]
        changes = keys.changes(self._connection.address.prefix)
        channel: Any = self._connection.client.pubsub()
        async with asyncio.timeout(self._connection.answer_seconds):
            await channel.subscribe(changes, self._resignations)
            for _ in range(2):
                while (await channel.get_message(timeout=None))["type"] != "subscribe":
                    pass
        return channel  # type: ignore[no-any-return]

    async def _follow(self, channel: PubSub) -> None:
        """Pass on what comes, until the connection fails or answers no more."""
        silence = self._connection.answer_seconds
        asked = False
        while True:
            message: Any = await channel.get_message(timeout=silence)
            if message is None and asked:
                raise TimeoutError
            if message is None:
                await channel.ping()
            elif message["type"] == "message" and message["channel"].decode() == self._resignations:
                self.resignations.publish(message["data"].decode(errors="replace"), None)
            elif message["type"] == "message":
                self._hear(message["data"].decode(errors="replace"))
            asked = message is None

    def _hear(self, text: str) -> None:
        if not (match := _MESSAGE.fullmatch(text)):
            log.warning("%s: not one of our messages: %.80r", self._connection.address, text)
            return
        job_id, state, token = match.groups()
        write = self._writes.get(token)
        if write is None:
            self.feed.publish(int(job_id), JobState(state))
        elif write.told:
            del self._writes[token]
        else:
            write.heard = (int(job_id), JobState(state))


async def _let_go(channel: PubSub) -> None:
    with suppress(RedisError, OSError):
        await channel.aclose()  # type: ignore[no-untyped-call]
