"""Logs of pods and containers: read from the engine, or from the spool once the instance is gone."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import ClassVar, Generic, TypeVar

from job_tracker.backends.shared.live_groups import LiveGroup, LiveGroups
from job_tracker.common.backoff import Backoff
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.group import GroupRef
from job_tracker.logs.records import BEGINNING, last_time, nanoseconds
from job_tracker.logs.spool import FolderSpool
from job_tracker.logs.writing import time_at

_SILENCE = 300.0  # seconds after which a quiet stream is opened again: its connection may be dead
_SHORT_SILENCE = 10.0  # seconds after which a quiet stream fails if it does not follow its log
_FIRST_PAUSE = 1.0
_TRIES_AFTER_END = 5


class NoLiveLog(BackendUnavailable):
    """The engine has no log of the rank."""


def is_saved(keeping: asyncio.Task[bool]) -> bool:
    """Return whether `keeping`, an ended task of EngineLogs.keep, has saved the whole log."""
    return not keeping.cancelled() and keeping.exception() is None and keeping.result()


class StreamRecords:
    """Makes records from the lines of one stream, and leaves out lines that were read before."""

    def __init__(self, after: bytes) -> None:
        """Leave out lines up to and including the time `after`."""
        self.last = after
        """The time of the last record that was read."""
        self._is_new = False

    def is_new(self, time: bytes) -> bool:
        """Return whether the next line, which has this time, is new. All lines after a new line are new."""
        self._is_new = self._is_new or time > self.last
        return self._is_new

    def record(self, time: bytes, tag: bytes, printed: bytes) -> bytes:
        """Return the record of a printed line.

        The times of records grow even if the clock of the engine is set back.
        """
        self.last = time if time > self.last else time_at(nanoseconds(self.last) + 1)
        return b"%b %b %b\n" % (self.last, tag, printed)


AGroup = TypeVar("AGroup", bound=LiveGroup)
Instance = TypeVar("Instance")


class EngineLogs(ABC, Generic[AGroup, Instance]):
    """Reads the logs of the pods or containers of an engine."""

    unreachable: ClassVar[type[BackendUnavailable]]
    """The error that is raised if the engine does not answer."""
    gone: ClassVar[tuple[type[BackendUnavailable], ...]]
    """The errors that are raised if the engine no longer has the log. The spool may have it."""
    retried: ClassVar[tuple[type[BackendUnavailable], ...]]
    """The errors after which a stream is opened again."""
    longest_pause: ClassVar[float] = _FIRST_PAUSE
    """Longest pause, in seconds, before a stream is opened again. Pauses grow while streams have no lines."""

    def __init__(self, groups: LiveGroups[AGroup], spool: FolderSpool) -> None:
        self._groups = groups
        self._spool = spool

    async def read(
        self,
        ref: GroupRef,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Read the log of the rank with all its restarts: see Backend.logs."""
        group = self._groups.get(ref)
        if group is None or group.is_kept or rank >= group.instances:
            pieces = self._spool.read(ref, rank, after=after, tail_lines=tail_lines)
        else:
            live = partial(self.read_live, group, rank, follow=follow, after=after, tail_lines=tail_lines)
            gone: tuple[type[BackendUnavailable], ...] = (NoLiveLog, *self.gone)
            current = group.restarts_of(rank)
            pieces = self._spool.read_on(ref, rank, current, live, gone, after=after, tail_lines=tail_lines)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def keep(self, group: AGroup, rank: int, *, follow: bool = False, again: bool = True) -> bool:
        """Copy the rank's log to the spool, beginning with the rank's last restart.

        Return whether the whole log was copied. With `again`, repeat the copy if the engine does not answer.
        """
        read = partial(self.read_live, group, rank, follow=follow, for_stop=True)
        errors = (self.unreachable,) if again else ()
        return await self._spool.keep(group.ref, rank, group.restarts_of(rank), read, again_after=errors)

    async def read_live(
        self,
        group: AGroup,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
        for_stop: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """Read from the engine what the rank has printed since its last restart, in pieces of whole records.

        With `follow`, wait until the rank starts, and open the stream again if it breaks. The times of the
        lines show where to continue, so that no line is lost or repeated. While the group is being stopped,
        broken streams of some engines are opened again only with `for_stop`. Raises NoLiveLog if the log
        cannot be read, for example because the rank has not started. Also raises the errors of the engine.
        """
        instance = await self._once_started(group, rank) if follow else self._started(group, rank)
        if instance is None or (rank in group.gone and not follow):
            raise NoLiveLog("the rank has not started")
        last, failures, backoff = after, 0, Backoff(_FIRST_PAUSE, self.longest_pause)
        while True:
            had_ended, opened = self._has_ended(group, rank), time.monotonic()
            silence = _SILENCE if follow else _SHORT_SILENCE
            stream = self._stream(instance, last, silence, follow=follow, tail_lines=tail_lines)
            try:
                async with aclosing(stream) as pieces:
                    async for piece in pieces:
                        last, tail_lines = last_time(piece), None
                        backoff.reset()
                        yield piece
                if had_ended or not follow:  # the stream had everything that was printed
                    return
            except BackendUnavailable as error:
                failures += 1
                gave_up = had_ended and failures > _TRIES_AFTER_END
                if not follow:
                    raise
                if self._is_gone(error, had_ended=had_ended, gave_up=gave_up):
                    if last > after:
                        return  # all lines have been read
                    raise
                if gave_up or not isinstance(error, self.retried):
                    raise
            if had_ended:
                await asyncio.sleep(_FIRST_PAUSE)
            else:  # the connection may have broken
                if time.monotonic() - opened > self.longest_pause:
                    backoff.reset()  # the stream was open, and the program was quiet
                await self._groups.wait(group, self._has_changed(group, rank), backoff.next())
            if failures and not for_stop and self._is_left_to_stop(group):
                if last > after:
                    return
                raise NoLiveLog("the group is being stopped")

    @abstractmethod
    def _started(self, group: AGroup, rank: int) -> Instance | None:
        """Return the last seen state of the rank's instance, even if it is gone; None if its program has
        not started.
        """

    @abstractmethod
    def _stream(
        self, instance: Instance, after: bytes, silence: float, *, follow: bool, tail_lines: int | None
    ) -> AsyncGenerator[bytes, None]:
        """Read the records after the time `after` from one stream.

        Raises an error if the stream has been silent for `silence` seconds.
        """

    def _is_gone(self, error: BackendUnavailable, *, had_ended: bool, gave_up: bool) -> bool:  # noqa: ARG002
        """Return whether the error means that the engine no longer has the log.

        `had_ended` says that the rank had ended before the stream was opened. `gave_up` says that the stream
        will not be opened again.
        """
        return isinstance(error, self.gone)

    def _is_left_to_stop(self, group: AGroup) -> bool:  # noqa: ARG002
        """Return whether broken streams of the group stay closed, because the group is being stopped."""
        return False

    async def _once_started(self, group: AGroup, rank: int) -> Instance | None:
        def is_decided(_: AGroup) -> bool:
            return self._started(group, rank) is not None or self._has_ended(group, rank)

        await self._groups.wait(group, is_decided, None)
        return self._started(group, rank)

    def _has_changed(self, group: AGroup, rank: int) -> Callable[[AGroup], bool]:
        """Return a function that returns whether the rank has ended, or its instance has changed since
        this call.
        """
        before = self._started(group, rank)
        return lambda _: self._started(group, rank) is not before or self._has_ended(group, rank)

    def _has_ended(self, group: AGroup, rank: int) -> bool:
        return rank in group.gone or self._groups.observe(group).ranks[rank].status.phase.has_ended
