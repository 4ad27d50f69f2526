"""What a container printed, out of the engine: records, with the engine's times."""

import asyncio
import random
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.containers import Container
from job_tracker.backends.docker.engine_errors import Conflict, NotFound, Refused, Unreachable
from job_tracker.backends.docker.groups import ContainerGroup, Groups
from job_tracker.logs.records import BEGINNING, TIME, nanoseconds
from job_tracker.logs.writing import time_at

_SILENCE = 300.0  # seconds after which a quiet stream is opened anew, in case its connection is dead
_SHORT_SILENCE = 10.0  # of one that is not followed
_REOPEN_SECONDS = 1.0
_TRIES_AFTER_END = 5
_LINE = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ")


class LiveLogs:
    """The log of a container that is there."""

    def __init__(self, client: DockerClient, groups: Groups) -> None:
        self._client = client
        self._groups = groups

    async def read(
        self,
        group: ContainerGroup,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The records in pieces. Raises NotFound if there is no log, and the container will not start; and
        Conflict if it is about to go.

        To follow means to wait for the container to start, and to go on after a stream has broken off:
        each line comes with its time, so none is lost and none comes twice.
        """
        records = _Records(after)
        if not follow:
            container = group.living.get(rank)
            if container is None or not container.has_started:
                raise NotFound(404, "the container has not started")
            async with aclosing(
                self._stream(container, records, follow=False, tail_lines=tail_lines)
            ) as pieces:
                async for piece in pieces:
                    yield piece
            return
        container, failures = await self._started(group, rank), 0
        while True:
            had_ended = self._has_ended(group, rank)
            try:
                stream = self._stream(container, records, follow=True, tail_lines=tail_lines)
                async with aclosing(stream) as pieces:
                    async for piece in pieces:
                        tail_lines = None
                        yield piece
            except (NotFound, Conflict):  # it is removed, or about to be
                if records.last > after:
                    return  # what it printed had been read
                raise
            except (Unreachable, Refused):
                failures += 1
                if had_ended and failures > _TRIES_AFTER_END:
                    raise
            else:
                if had_ended:  # what was printed before the end has been read
                    return
            if had_ended:
                await asyncio.sleep(_REOPEN_SECONDS)
            else:  # not for long, as the stream may simply have broken
                within = random.uniform(_REOPEN_SECONDS / 2, _REOPEN_SECONDS)  # noqa: S311
                await self._groups.wait(group, lambda _: self._has_ended(group, rank), within)

    async def _stream(
        self, container: Container, records: "_Records", *, follow: bool, tail_lines: int | None
    ) -> AsyncGenerator[bytes, None]:
        """Those records of one stream that have not been seen yet."""
        lines = self._client.logs(
            container.id,
            follow=follow,
            since=records.since(),
            tail_lines=tail_lines,
            silence=_SILENCE if follow else _SHORT_SILENCE,
        )
        async with aclosing(lines) as each:
            async for line in each:
                if made := records.made(line):
                    yield made

    async def _started(self, group: ContainerGroup, rank: int) -> Container:
        """The container, once its program has started."""

        def is_decided(_: ContainerGroup) -> bool:
            known = group.containers.get(rank)
            return (known is not None and known.has_started) or self._has_ended(group, rank)

        await self._groups.wait(group, is_decided, None)
        container = group.containers.get(rank)
        if container is None or not container.has_started:
            raise NotFound(404, "the container never started")
        return container

    def _has_ended(self, group: ContainerGroup, rank: int) -> bool:
        return rank in group.gone or self._groups.observe(group).ranks[rank].status.phase.has_ended


class _Records:
    """Makes records of lines with times, as the engine sends them; streams that overlap become one."""

    def __init__(self, after: bytes) -> None:
        self.last = after
        """The time of the last record."""
        self._is_new = False

    def since(self) -> int | None:
        """From which second (of 1970) on a stream goes on after the last record. To be called before each."""
        self._is_new = False
        # Whole seconds: what comes twice is left out by its time.
        return nanoseconds(self.last) // 10**9 if self.last else None

    def made(self, line: bytes) -> bytes:
        """The record of a line, or of a part of a long one; b"" if it has been seen, or is none."""
        if _LINE.match(line) is None:
            return b""
        told = line[:TIME]
        self._is_new = self._is_new or told > self.last
        if not self._is_new:
            return b""
        # The engine's clock may be set back, which does not disturb the order.
        self.last = told if told > self.last else time_at(nanoseconds(self.last) + 1)
        printed = line[TIME + 1 :]
        tag = b"F" if printed.endswith(b"\n") else b"P"
        return b"%b %b %b\n" % (self.last, tag, printed.removesuffix(b"\n"))
