"""Broadcasts changes of jobs: directly within this process, and by pub/sub to other replicas.

A replica misses the messages that are sent while it is not connected. So whenever it has connected again, it
announces, in its own process, each job that may have changed: live jobs, the head of the queue, and jobs with
watchers.
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
    """A write of this process to the server.

    The server's message about the write is used only if the write got no answer.
    """

    token: str
    published: bool = False
    heard: tuple[int, JobState] | None = None
    """The message about the write, if it came before the answer."""


class ChangeFeed:
    """Broadcasts the changes that this process makes, and those that arrive on the store's channel."""

    def __init__(
        self, connection: Connection, catch_up: Callable[[], Awaitable[list[tuple[int, JobState]]]]
    ) -> None:
        """`catch_up` reads the jobs whose changes may have been missed."""
        self.feed: Broadcast[int, JobState] = Broadcast()
        self.resignations: Broadcast[str, None] = Broadcast()
        self._connection = connection
        self._catch_up = catch_up
        self._resignations = keys.resignations(connection.address.prefix)
        self._writes: dict[str, Write] = {}
        self._tokens = (f"{uuid.uuid4().hex}-{number}" for number in itertools.count())
        self._listener: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start listening. All later changes are seen.

        Raises TimeoutError and the errors of the client library.
        """
        channel = await self._subscribe()
        self._listener = background(self._listen(channel), "changes in Redis", detached=True)

    async def close(self) -> None:
        """Stop listening."""
        while self._listener is not None and not self._listener.done():
            self._listener.cancel()
            # One cancellation may not be enough: the library calls asyncio.wait_for, which before Python 3.12
            # loses a cancellation that arrives while its call is ending
            # (https://github.com/python/cpython/issues/86296).
            await asyncio.wait([self._listener], timeout=_CANCEL_SECONDS)

    @contextmanager
    def writing(self) -> Iterator[Write]:
        """Register a write for the duration of the block.

        The server repeats the write's token in its message about the write, so that the message is
        recognised. If the caller calls `publish` in the block, after the server's answer, the message is
        ignored. If there is no answer, for example because the caller was cancelled, the change in the
        message is published.
        """
        write = Write(next(self._tokens))
        self._writes[write.token] = write
        try:
            yield write
        finally:
            if not write.published:
                del self._writes[write.token]
                if write.heard is not None:
                    self.feed.publish(*write.heard)

    def publish(self, write: Write, job_id: int, state: JobState, by: Changes | None = None) -> None:
        """Publish the change of the job within this process at once, except to `by`, the writer's own
        subscription.
        """
        write.published = True
        if write.heard is not None:
            del self._writes[write.token]
        self.feed.publish(job_id, state, by=by)

    async def _listen(self, channel: PubSub) -> None:
        while True:
            try:
                await self._follow(channel)
            except Exception as error:  # the task must survive every error, or later changes would be missed
                log.warning("%s: changes are not received: %s", self._connection.address, explain(error))
            finally:
                await _release(channel)
            channel = await self._subscribe_again()
            log.info("%s: changes are received again", self._connection.address)

    async def _subscribe_again(self) -> PubSub:
        """Try to connect until this succeeds, and publish all changes that may have been missed.

        Return the new channel.
        """
        backoff, logged = Backoff(_FIRST_DELAY, _LONGEST_DELAY), ""
        while True:
            await asyncio.sleep(backoff.next())
            try:
                channel = await self._subscribe()
            except (RedisError, OSError, TimeoutError):
                continue
            try:
                missed = await self._catch_up()
            except BaseException as error:
                await _release(channel)
                if not isinstance(error, StoreUnavailable):
                    raise
                if str(error) != logged:
                    log.warning("%s", logged := str(error))
                continue
            for job_id, state in missed:
                self.feed.publish(job_id, state)
            self.resignations.publish("unknown", None)
            return channel

    async def _subscribe(self) -> PubSub:
        # The messages about earlier writes no longer arrive, so do not wait for them.
        for token in [write.token for write in self._writes.values() if write.published]:
            del self._writes[token]
        changes = keys.changes(self._connection.address.prefix)
        channel: Any = self._connection.client.pubsub()
        try:
            async with asyncio.timeout(self._connection.answer_seconds):
                await channel.subscribe(changes, self._resignations)
                for _ in range(2):
                    while (await channel.get_message(timeout=None))["type"] != "subscribe":
                        pass
        except BaseException:
            await _release(channel)
            raise
        return channel  # type: ignore[no-any-return]

    async def _follow(self, channel: PubSub) -> None:
        """Pass on the messages of the channel.

        Raises an error when the connection fails or the server stops answering.
        """
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
                self._receive(message["data"].decode(errors="replace"))
            asked = message is None

    def _receive(self, text: str) -> None:
        if not (match := _MESSAGE.fullmatch(text)):
            log.warning("%s: ignored a foreign message: %.80r", self._connection.address, text)
            return
        job_id, state, token = match.groups()
        write = self._writes.get(token)
        if write is None:
            self.feed.publish(int(job_id), JobState(state))
        elif write.published:
            del self._writes[token]
        else:
            write.heard = (int(job_id), JobState(state))


async def _release(channel: PubSub) -> None:
    with suppress(RedisError, OSError):
        await channel.aclose()  # type: ignore[no-untyped-call]
