"""What the ranks print: out of the API while their pods are there, out of kept files afterwards."""

import asyncio
import logging
import random
import re
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from job_tracker.backends.kubernetes.api_errors import ApiError, Invalid, NotFound, Unreachable
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.groups import Group, Groups, has_started
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.catalog.pods import CONTAINER
from job_tracker.logs import segments
from job_tracker.logs.records import BEGINNING, nanoseconds
from job_tracker.logs.writing import LogWriter, parts_of, time_at
from job_tracker.model import GroupRef

log = logging.getLogger(__name__)

_SILENCE = 300.0  # seconds after which a quiet stream is opened anew, in case its connection is dead
_GONE = "gone"
_KEEP_PAUSES = (0.2, 1.0)  # seconds between tries to read a log whose pod is about to go
_SHORT_SILENCE = 10.0  # of one that is not followed
_REOPEN_SECONDS = 1.0
# A node whose logs cannot be had now is not asked for each of its masters every second, for hours.
_LONGEST_REOPEN_SECONDS = 300.0
_TRIES_AFTER_END = 5
_LONGEST_LINE = 64 * 1024
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
# What it adds to the log that it was following when the container is removed.
_KUBELET_S_WORDS = re.compile(rb"rpc error: code = \w+ desc = [^\n]*container[^\n]*\Z")


class KeptLogs:
    """The logs of pods that are gone: <root>/<group>.<job id>.<attempt>/<rank>, until they are in storage.

    Of a rank that was started anew each start has one of its own: <rank>, <rank>.1, <rank>.2, …
    """

    def __init__(self, root: Path, most_log: int) -> None:
        """Of each rank's log, `most_log` bytes are kept."""
        self._root = root
        self._most_log = most_log

    def find(self, ref: GroupRef, rank: int) -> dict[int, Path]:
        """The folders of a rank's logs, by how often it had been started anew; as far as they were kept."""
        first = self._path(ref, rank, 0)
        later = {
            int(path.suffix[1:]): path for path in first.parent.glob(f"{rank}.*") if path.suffix[1:].isdigit()
        }
        return ({0: first} if first.exists() else {}) | dict(sorted(later.items()))

    def groups(self) -> list[GroupRef]:
        """Of which groups logs are kept."""
        found = []
        for path in self._root.glob("*.*.*"):
            name, job_id, attempt = path.name.split(".")
            found.append(GroupRef(name, int(job_id), int(attempt)))
        return found

    async def keep(
        self, ref: GroupRef, rank: int, restarts: int, read: Callable[[], AsyncGenerator[bytes, None]]
    ) -> None:
        """Keep the records that `read` gives, from the log's beginning on, unless there are more already.

        It is read again if the API server goes away: what is not read now goes with its pod. A log that
        cannot be read, or not to its end, is kept as far as it can.
        """
        for pause in (*_KEEP_PAUSES, None):
            failure = await self._write(ref, rank, restarts, read())
            if not isinstance(failure, Unreachable) or pause is None:
                break
            await asyncio.sleep(pause)
        if failure is not None:
            log.warning("the log of rank %d of %s may not be whole: %s", rank, ref.name, failure)

    async def discard(self, ref: GroupRef) -> None:
        """Delete the logs of a group: all of them at once, whoever looks."""
        await asyncio.to_thread(self._remove, self._path(ref, 0, 0).parent)

    async def sweep(self) -> None:
        """Delete what a service that was killed had begun to."""
        for folder in (self._root / _GONE).glob("*"):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _remove(self, folder: Path) -> None:
        gone = self._root / _GONE / uuid4().hex
        gone.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _path(self, ref: GroupRef, rank: int, restarts: int) -> Path:
        name = f"{rank}.{restarts}" if restarts else str(rank)
        return self._root / f"{ref.name}.{ref.job_id}.{ref.attempt}" / name

    async def _write(
        self, ref: GroupRef, rank: int, restarts: int, pieces: AsyncGenerator[bytes, None]
    ) -> ApiError | None:
        """Write what there is of the records, and say why that is not all, if it is not."""
        failure: ApiError | None = None
        path = self._path(ref, rank, restarts)
        aside, before = path.with_name(f"{path.name}.new"), path.with_name(f"{path.name}.old")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.rmtree(aside, ignore_errors=True)
            writer = LogWriter(str(aside), self._most_log)
            try:
                async with aclosing(pieces):
                    async for piece in pieces:
                        writer.write(piece)
            except ApiError as error:
                failure = error
            finally:
                writer.close()
            if not path.exists() or writer.end > segments.end(path):
                if path.exists():
                    path.rename(before)
                aside.rename(path)
        except OSError as error:
            log.warning("the log of rank %d of %s is not kept: %s", rank, ref.name, error)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(before, ignore_errors=True)
        return failure


class LiveLogs:
    """The log of a pod that is there."""

    def __init__(self, client: KubernetesClient, groups: Groups) -> None:
        self._client = client
        self._groups = groups

    async def read(
        self,
        group: Group,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The records in pieces. Raises NotFound if there is no log, and the pod will not start.

        To follow means to wait for the container to start, and to go on after a stream has broken off,
        after pauses that grow while there is none to be had: each line comes with its time, so none is
        lost and none comes twice.
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
        failures, pause = 0, _REOPEN_SECONDS
        while True:
            had_ended, opened = self._has_ended(group, rank), time.monotonic()
            try:
                stream = self._stream(pod, records, follow=True, tail_lines=tail_lines)
                async with aclosing(stream) as pieces:
                    async for piece in pieces:
                        pause, tail_lines = _REOPEN_SECONDS, None
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
                    pause = _REOPEN_SECONDS  # it was there, and silent
                within = random.uniform(pause / 2, pause)  # noqa: S311  # not all that broke together at once
                await self._groups.wait(group, self._has_changed(group, rank), within)
                pause = min(2 * pause, _LONGEST_REOPEN_SECONDS)

    def _has_changed(self, group: Group, rank: int) -> Callable[[Group], bool]:
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

    async def _started(self, group: Group, rank: int) -> Manifest:
        """The pod, once its container has started."""

        def is_decided(_: Group) -> bool:
            return has_started(group.pods.get(rank, {})) or self._has_ended(group, rank)

        await self._groups.wait(group, is_decided, None)
        pod = group.pods.get(rank, {})
        if not has_started(pod):
            raise NotFound(404, "NotFound", "the container never started")
        return pod

    def _has_ended(self, group: Group, rank: int) -> bool:
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
