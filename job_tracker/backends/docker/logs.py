"""Logs of containers, as records with the times of the engine."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.containers import Container
from job_tracker.backends.docker.engine_errors import Conflict, NotFound, Refused, Unreachable
from job_tracker.backends.docker.groups import ContainerGroup, Groups
from job_tracker.backends.shared.engine_logs import EngineLogs, StreamRecords
from job_tracker.logs.records import TIME, nanoseconds
from job_tracker.logs.spool import FolderSpool

_LINE = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ")


class ContainerLogs(EngineLogs[ContainerGroup, Container]):
    """See EngineLogs."""

    unreachable = Unreachable
    gone = (NotFound, Conflict)  # the container was removed, or is being removed
    retried = (Unreachable, Refused)

    def __init__(self, client: DockerClient, groups: Groups, spool: FolderSpool) -> None:
        super().__init__(groups, spool)
        self._client = client

    def _started(self, group: ContainerGroup, rank: int) -> Container | None:
        container = group.containers.get(rank)
        return container if container is not None and container.has_started else None

    async def _stream(
        self, instance: Container, after: bytes, silence: float, *, follow: bool, tail_lines: int | None
    ) -> AsyncGenerator[bytes, None]:
        records = StreamRecords(after)
        # `since` has whole seconds, so lines before `after` may come again. Such lines are recognized by
        # their times, and left out.
        since = nanoseconds(after) // 10**9 if after else None
        lines = self._client.logs(
            instance.id, follow=follow, since=since, tail_lines=tail_lines, silence=silence
        )
        async with aclosing(lines) as each:
            async for line in each:
                if made := _record(records, line):
                    yield made


def _record(records: StreamRecords, line: bytes) -> bytes:
    """Return the record of a line, or of a part of a long line; b"" if it was seen before or has no time."""
    if _LINE.match(line) is None or not records.is_new(line[:TIME]):
        return b""
    printed = line[TIME + 1 :]
    tag = b"F" if printed.endswith(b"\n") else b"P"
    return records.record(line[:TIME], tag, printed.removesuffix(b"\n"))
