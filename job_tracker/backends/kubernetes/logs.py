"""What the ranks print: out of the API while their pods are there, out of kept files afterwards."""

import asyncio
import logging
import random
import re
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

from job_tracker.backends.kubernetes.api_errors import ApiError, Invalid, NotFound, Unreachable
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.groups import Group, Groups, has_started
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.catalog.pods import CONTAINER
from job_tracker.model import GroupRef

log = logging.getLogger(__name__)

MOST_KEPT = 10 << 20
_SILENCE = 300.0  # seconds after which a quiet stream is opened anew, in case its connection is dead
_KEEP_SILENCE = 10.0
_KEEP_PAUSES = (0.2, 1.0)  # seconds between tries: what is not read now goes with its pod
_REOPEN_SECONDS = 1.0
# A node whose logs cannot be had now is not asked for each of its masters every second, for hours.
_LONGEST_REOPEN_SECONDS = 300.0
_TRIES_AFTER_END = 5
_LONGEST_LINE = 64 * 1024
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d) ")
# What it adds to the log that it was following when the container is removed.
_KUBELET_S_WORDS = re.compile(rb"rpc error: code = \w+ desc = [^\n]*container[^\n]*\Z")
# What kubelet writes in place of the log of a container whose log is gone.
_NO_LOG = b"unable to retrieve container logs for "


class KeptLogs:
    """The logs of stopped groups: <root>/<group>/<rank>.log."""

    def __init__(self, client: KubernetesClient, root: Path) -> None:
        self._client = client
        self._root = root

    def find(self, ref: GroupRef, rank: int) -> Path | None:
        """The file of a rank's log, if one was kept."""
        path = self._path(ref, rank)
        return path if path.exists() else None

    async def keep(self, ref: GroupRef, rank: int, pod: Manifest) -> None:
        """Keep what the rank has printed so far, or the end of it. A log that cannot be read is not kept."""
        name, query = pod["metadata"]["name"], [("container", CONTAINER)]
        for pause in (*_KEEP_PAUSES, None):
            failure = await self._write(ref, rank, self._client.logs(name, query, silence=_KEEP_SILENCE))
            if not isinstance(failure, Unreachable) or pause is None:
                break
            await asyncio.sleep(pause)
        _warn_of(failure, ref, rank)

    async def keep_rest(self, ref: GroupRef, rank: int, text: AsyncGenerator[str, None]) -> None:
        """Keep all of `text`, which is the log from its beginning on, in place of what `keep` kept."""
        _warn_of(await self._write(ref, rank, (piece.encode() async for piece in text)), ref, rank)

    async def discard(self, ref: GroupRef) -> None:
        """Delete the logs of a group."""
        await asyncio.to_thread(shutil.rmtree, self._root / ref.name, ignore_errors=True)

    def _path(self, ref: GroupRef, rank: int) -> Path:
        return self._root / ref.name / f"{rank}.log"

    async def _write(self, ref: GroupRef, rank: int, pieces: AsyncGenerator[bytes, None]) -> ApiError | None:
        """Write what there is of the pieces, and say why that is not all, if it is not."""
        failure = None
        path = self._path(ref, rank)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = path.with_suffix(".new")
        try:
            with aside.open("w+b") as file:
                try:
                    async with aclosing(pieces):
                        async for piece in pieces:
                            file.write(piece)
                            if file.tell() > 2 * MOST_KEPT:
                                _keep_end(file)
                except ApiError as error:
                    failure = error
                _keep_end(file)
                file.seek(0)
                is_log = file.read(len(_NO_LOG)) != _NO_LOG
            # A stream that broke off early is no more than what there is.
            if is_log and not (path.exists() and path.stat().st_size > aside.stat().st_size):
                aside.rename(path)
        except OSError as error:
            log.warning("the log of rank %d of %s is not kept: %s", rank, ref.name, error)
        finally:
            aside.unlink(missing_ok=True)
        return failure


def _warn_of(failure: ApiError | None, ref: GroupRef, rank: int) -> None:
    if failure is not None:
        log.warning("the log of rank %d of %s may not be whole: %s", rank, ref.name, failure)


class LiveLogs:
    """The log of a pod that is there."""

    def __init__(self, client: KubernetesClient, groups: Groups) -> None:
        self._client = client
        self._groups = groups

    async def read(
        self, group: Group, rank: int, *, follow: bool, tail_lines: int | None = None
    ) -> AsyncGenerator[str, None]:
        """The text in pieces of whole lines. Raises NotFound if there is none, and the pod will not start.

        To follow means to wait for the container to start, and to go on after a stream has broken off,
        after pauses that grow while there is none to be had: each line comes with its time, so none is
        lost and none comes twice.
        """
        if not follow:
            pod = group.living.get(rank)
            if pod is None or not has_started(pod):
                raise NotFound(404, "NotFound", "the container has not started")
            async with aclosing(self._stream(pod, _tail(tail_lines))) as pieces:
                async for piece in _whole_lines(pieces):
                    yield piece.decode(errors="replace")
            return
        pod = await self._started(group, rank)
        tail, lines, failures = _tail(tail_lines), _TimedLines(), 0
        pause = _REOPEN_SECONDS
        while True:
            had_ended, opened = self._has_ended(group, rank), time.monotonic()
            query = [("follow", "true"), ("timestamps", "true"), *(lines.since() or tail)]
            try:
                async with aclosing(self._stream(pod, query)) as pieces:
                    async for piece in _whole_lines(pieces):
                        text = lines.untimed(piece)
                        if text:  # and not kubelet's words alone
                            pause = _REOPEN_SECONDS
                            yield text.decode(errors="replace")
            except NotFound:
                return
            except (Unreachable, Invalid) as error:
                failures += 1
                if had_ended and (isinstance(error, Invalid) or failures > _TRIES_AFTER_END):
                    if lines.since():
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

    def _stream(self, pod: Manifest, query: list[tuple[str, str]]) -> AsyncGenerator[bytes, None]:
        return self._client.logs(
            pod["metadata"]["name"], [("container", CONTAINER), *query], silence=_SILENCE
        )

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


def _tail(lines: int | None) -> list[tuple[str, str]]:
    return [] if lines is None else [("tailLines", str(lines))]


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


class _TimedLines:
    """Lines that begin with their time, as kubelet sends them on request; streams that overlap become one."""

    def __init__(self) -> None:
        self._last = b""
        self._is_cut = False

    def untimed(self, piece: bytes) -> bytes:
        """The lines that have not been seen yet, without their times.

        What has no time is not the program's: kubelet says in between what went wrong.
        """
        kept = []
        for line in piece.splitlines(keepends=True):
            at = _TIME.match(line)
            if at is not None and _comparable(at[0]) > _comparable(self._last):
                kept.append(_KUBELET_S_WORDS.sub(b"", line[at.end() :]))
                self._last = at[0]
            elif at is None and self._is_cut:
                kept.append(line)
            self._is_cut = not line.endswith(b"\n")
        return b"".join(kept)

    def since(self) -> list[tuple[str, str]]:
        """What of a query lets a stream go on after the last line; nothing if there was none."""
        self._is_cut = False
        found = _TIME.match(self._last)
        # Whole seconds, as the API takes no fractions: what comes twice is left out by its time.
        return [("sinceTime", (found[1] + found[3]).decode())] if found else []


def _comparable(at: bytes) -> tuple[bytes, bytes]:
    # The fraction may come without trailing zeros, so that text would not compare as the times do.
    found = _TIME.match(at)
    return (found[1], (found[2] or b".").ljust(10, b"0")) if found else (b"", b"")


def _keep_end(file: BinaryIO) -> None:
    """Cut the file's beginning off, at a line's end, so that no more than MOST_KEPT is left."""
    size = file.seek(0, 2)
    if size <= MOST_KEPT:
        return
    file.seek(size - MOST_KEPT)
    end = file.read()
    file.seek(0)
    file.write(end[end.find(b"\n") + 1 :])
    file.truncate()
