"""What the ranks print: out of the API while their pods are there, out of kept files afterwards."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime

from job_tracker.backends.kubernetes.api_errors import Invalid, NotFound, Unreachable
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.groups import Groups, PodGroup, has_started
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.backends.kubernetes.options import CONTAINER
from job_tracker.common.backoff import Backoff
from job_tracker.logs.records import BEGINNING, nanoseconds
from job_tracker.logs.writing import parts_of, time_at

log = logging.getLogger(__name__)

_SILENCE = 300.0  # seconds after which a quiet stream is opened anew, in case its connection is dead


_SHORT_SILENCE = 10.0  # of one that is not followed
_REOPEN_SECONDS = 1.0
# A node whose logs cannot be had now is not asked for each of its masters every second, for hours.
_LONGEST_REOPEN_SECONDS = 300.0
_TRIES_AFTER_END = 5
_LONGEST_LINE = 64 * 1024
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
# What it adds to the log that it was following when the container is removed.
_KUBELET_S_WORDS = re.compile(rb"rpc error: code = \w+ desc = [^\n]*container[^\n]*\Z")


class LiveLogs:
    """The log of a pod that is there."""

    def __init__(self, client: KubernetesClient, groups: Groups) -> None:
        self._client = client
        self._groups = groups

    async def read(
        self,
        group: PodGroup,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
        for_stop: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """The records in pieces. Raises NotFound if there is no log, and the pod will not start.

        To follow means to wait for the container to start, and to go on after a stream has broken off,
        after pauses that grow while there is none to be had: each line comes with its time, so none is
        lost and none comes twice. Of a group that is being stopped, a stream that broke off is left to
        the stop, which says `for_stop`: what it can read, it keeps.
        """
        records = _Records(after)
        if not follow:
            pod = group.living.get(rank)
            if pod is None or not has_started(pod):
                raise NotFound(404, "NotFound", "the container has not started")
            async with aclosing(self._stream(pod, records, follow=False, tail_lines=tail_lines)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        pod = await self._started(group, rank)
        failures, backoff = 0, Backoff(_REOPEN_SECONDS, _LONGEST_REOPEN_SECONDS)
        while True:
            had_ended, opened = self._has_ended(group, rank), time.monotonic()
            try:
                stream = self._stream(pod, records, follow=True, tail_lines=tail_lines)
                async with aclosing(stream) as pieces:
                    async for piece in pieces:
                        tail_lines = None
                        backoff.reset()
                        yield piece
            except NotFound:
                return
            except (Unreachable, Invalid) as error:
                failures += 1
                if had_ended and (isinstance(error, Invalid) or failures > _TRIES_AFTER_END):
                    if records.last > after:
                        return  # the container was removed, and what it printed had been read
                    raise
            else:
                if had_ended:  # what was printed before the end has been read
                    return
            if had_ended:
                await asyncio.sleep(_REOPEN_SECONDS)
            else:  # not for long, as the stream may simply have broken
                if time.monotonic() - opened > _LONGEST_REOPEN_SECONDS:
                    backoff.reset()  # it was there, and silent
                await self._groups.wait(group, self._has_changed(group, rank), backoff.next())
            if failures and group.stopping and not for_stop:
                if records.last > after:
                    return
                raise NotFound(404, "NotFound", "the group is being stopped")

    def _has_changed(self, group: PodGroup, rank: int) -> Callable[[PodGroup], bool]:
        """Whether the pod is told to be another than now: it has ended, or its node is back."""
        before = group.pods.get(rank)
        return lambda _: group.pods.get(rank) is not before or self._has_ended(group, rank)

    async def _stream(
        self, pod: Manifest, records: "_Records", *, follow: bool, tail_lines: int | None
    ) -> AsyncGenerator[bytes, None]:
        """Those records of one stream that have not been seen yet."""
        query = [("container", CONTAINER), ("timestamps", "true"), *records.since()]
        query += [("follow", "true")] if follow else []
        query += [("tailLines", str(tail_lines))] if tail_lines is not None else []
        silence = _SILENCE if follow else _SHORT_SILENCE
        async with aclosing(self._client.logs(pod["metadata"]["name"], query, silence=silence)) as pieces:
            async for piece in _whole_lines(pieces):
                if made := records.made(piece):  # and not kubelet's words alone
                    yield made

    async def _started(self, group: PodGroup, rank: int) -> Manifest:
        """The pod, once its container has started."""

        def is_decided(_: PodGroup) -> bool:
            return has_started(group.pods.get(rank, {})) or self._has_ended(group, rank)

        await self._groups.wait(group, is_decided, None)
        pod = group.pods.get(rank, {})
        if not has_started(pod):
            raise NotFound(404, "NotFound", "the container never started")
        return pod

    def _has_ended(self, group: PodGroup, rank: int) -> bool:
        return self._groups.observe(group).ranks[rank].status.phase.has_ended or rank in group.gone


async def _whole_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same in pieces that end where a line does, but for the last, and for lines without end."""
    rest = b""
    async for piece in pieces:
        rest += piece
        end = rest.rfind(b"\n") + 1 or (len(rest) if len(rest) >= _LONGEST_LINE else 0)
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


class _Records:
    """Makes records of lines with times, as kubelet sends them; streams that overlap become one."""

    def __init__(self, after: bytes) -> None:
        self.last = after
        """The time of the last record."""
        self._is_new = False
        self._is_cut = False

    def since(self) -> list[tuple[str, str]]:
        """What of a query lets a stream go on after the last record; nothing if there was none.

        To be called before each stream.
        """
        self._is_new = self._is_cut = False
        # Whole seconds, as the API takes no fractions: what comes twice is left out by its time.
        return [("sinceTime", f"{self.last[:19].decode()}Z")] if self.last else []

    def made(self, piece: bytes) -> bytes:
        """The records of the lines that have not been seen yet.

        What has no time is not the program's: kubelet says in between what went wrong.
        """
        return b"".join([self._made(line) for line in re.findall(rb"[^\n]*\n|[^\n]+", piece)])

    def _made(self, line: bytes) -> bytes:
        at = _TIME.match(line)
        if at is None and not self._is_cut:
            return b""
        if at is not None:
            told = _utc(at)
            self._is_new = self._is_new or told > self.last
            if not self._is_new:
                return b""
        printed = _KUBELET_S_WORDS.sub(b"", line[at.end() :]) if at else line
        is_whole = printed.endswith(b"\n")
        self._is_cut = not is_whole
        *parts, end = parts_of(printed.removesuffix(b"\n"))
        made = [self._record(at, b"P", part) for part in parts]
        if is_whole or end:
            made.append(self._record(at, b"F" if is_whole else b"P", end))
        return b"".join(made)

    def _record(self, at: re.Match[bytes] | None, tag: bytes, printed: bytes) -> bytes:
        # A clock of the node that is set back does not disturb the order.
        told = _utc(at) if at else BEGINNING
        self.last = told if told > self.last else time_at(nanoseconds(self.last) + 1)
        return b"%b %b %b\n" % (self.last, tag, printed)


def _utc(at: re.Match[bytes]) -> bytes:
    """The time of a line as that of a record: the fraction may lack zeros, and the zone be another."""
    second, fraction, zone = at.groups()
    if zone != b"Z":
        moment = datetime.fromisoformat((second + zone).decode()).astimezone(UTC)
        second = moment.strftime("%Y-%m-%dT%H:%M:%S").encode()
    return b"%b.%bZ" % (second, (fraction or b"").ljust(9, b"0"))
