"""Open streams of callers: limits on their number, and the end of streams that may no longer be read."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeVar

from job_tracker.common.clock import utc_now
from job_tracker.common.log_context import request_id
from job_tracker.domain import rights
from job_tracker.domain.audit import EventObserver, Outcome, event_of, ignore_event
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import Forbidden, LimitExceeded, NotAllowed

T = TypeVar("T")

_STREAM_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class StreamUse:
    """The use of a stream: its reader, the operation, the job's project, and the target of audit events."""

    caller: Caller
    operation: str
    project: str
    target: str = ""


class OpenStreams:
    """Passes on the items of streams. `recheck` ends the streams that their callers may no longer read."""

    def __init__(
        self,
        most: int | None = None,
        most_of_one: int | None = None,
        *,
        note: EventObserver = ignore_event,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """At most `most` streams may be open, and at most `most_of_one` of each caller. None: any number.

        `note` gets an event for each stream that `recheck` ends.
        """
        self._note = note
        self._clock = clock
        self._most = most
        self._most_of_one = most_of_one
        self._open: set[_OpenStream] = set()
        self._of = Counter[str]()

    async def read(
        self, begin: Callable[[], Awaitable[tuple[StreamUse, AsyncGenerator[T, None]]]]
    ) -> AsyncGenerator[T, None]:
        """Yield the items of the stream that `begin` returns, and close the stream.

        Raises the errors of `begin` and of the stream. Raises LimitExceeded if too many streams are open. If
        `recheck` ends the stream, raises NotAllowed or Forbidden.
        """
        use, items = await begin()
        stream, who = _OpenStream(use), use.caller.key
        self._check_number(who)
        self._open.add(stream)
        self._of[who] += 1
        try:
            async with aclosing(items):
                while True:
                    # Keep no reference to the item while its reader is slow: the item may be large.
                    yield await stream.next(items)
        except StopAsyncIteration:
            return
        finally:
            self._open.discard(stream)
            self._of[who] -= 1
            if not self._of[who]:
                del self._of[who]

    def _check_number(self, who: str) -> None:
        for number, most, of, setting in (
            (self._of[who], self._most_of_one, f"by {who} ", "open_streams_of_caller"),
            (len(self._open), self._most, "", "open_streams"),
        ):
            if most is not None and number >= most:
                raise LimitExceeded(
                    f"{number} streams are open {of}(watches, logs and files), which is the limit "
                    f"(limits.{setting}); end some, or try again when others have ended",
                    limit=f"limits.{setting}",
                    retry_after=_STREAM_SECONDS,
                )

    async def recheck(self, current: Callable[[Caller], Awaitable[Caller]]) -> None:
        """End the streams that their callers may no longer read. Call this when roles may have changed.

        `current` returns a caller with its present roles, and raises NotAllowed if the caller's proof is no
        longer valid. It is called once for each Caller object. If it raises another error, `recheck` raises
        this error, and the streams that were not checked continue.
        """
        by_caller: dict[int, list[_OpenStream]] = {}
        for stream in self._open:
            by_caller.setdefault(id(stream.use.caller), []).append(stream)
        for streams in by_caller.values():
            try:
                caller = await current(streams[0].use.caller)
            except NotAllowed as error:
                for stream in streams:
                    self._end(stream, error)
                continue
            for stream in streams:
                try:
                    rights.check(caller, stream.use.operation, stream.use.project)
                except Forbidden as error:
                    self._end(stream, error)

    def _end(self, stream: "_OpenStream", error: Exception) -> None:
        if stream.has_ended:  # its reader has not received the error yet
            return
        stream.end(error)
        use = stream.use
        event = event_of(
            *(use.caller, use.operation, Outcome.DENIED, self._clock()),
            project=use.project,
            target=use.target,
            detail="an open stream was ended",
        )
        self._note(replace(event, request_id=stream.request_id))


class _OpenStream:
    def __init__(self, use: StreamUse) -> None:
        self.use = use
        self.request_id = request_id.get()
        self._error: Exception | None = None
        self._waiting: asyncio.Timeout | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether `end` was called."""
        return self._error is not None

    def end(self, error: Exception) -> None:
        """End the stream.

        If the reader is waiting for an item, the error is raised at once. Otherwise, it is raised in place of
        the next item.
        """
        self._error = error
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def next(self, items: AsyncGenerator[T, None]) -> T:
        """Return the next item.

        Raises StopAsyncIteration after the last item. After a call of `end`, raises the error of this call.
        """
        if self._error is not None:
            raise self._error
        try:
            async with asyncio.timeout(None) as self._waiting:
                return await anext(items)
        except TimeoutError:
            if self._error is None:
                raise
            raise self._error from None
        finally:
            self._waiting = None
