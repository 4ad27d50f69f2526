"""What the ranks of stopped groups printed, on this machine: pods and containers take theirs with them."""

import asyncio
import logging
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from uuid import uuid4

from job_tracker.errors import BackendUnavailable, LogsNotFound
from job_tracker.logs import segments
from job_tracker.logs.records import BEGINNING
from job_tracker.logs.writing import LogWriter
from job_tracker.model import GroupRef
from job_tracker.untrusted import place_of

log = logging.getLogger(__name__)

_GONE = "gone"
_KEEP_PAUSES = (0.2, 1.0)  # seconds between tries to read a log whose pod or container is about to go


class KeptLogs:
    """Logs of instances that are gone, in <root>/<group>.<job id>.<attempt>/<rank> until they are in storage.

    Of a rank that was started anew each start has one of its own: <rank>, <rank>.1, <rank>.2, …
    """

    def __init__(
        self,
        root: Path,
        most_log: int,
        away: type[BackendUnavailable],
        gone: tuple[type[Exception], ...] = (),
    ) -> None:
        """Of each rank's log, `most_log` bytes are kept.

        What raises `away` may be read a moment later; what raises one of `gone` is no more.
        """
        self._away = away
        self._gone = gone
        self._root = root
        self._most_log = most_log

    def find(self, ref: GroupRef, rank: int) -> dict[int, Path]:
        """The folders of a rank's logs, by how often it had been started anew; as far as they were kept."""
        first = self._path(ref, rank, 0)
        later = {
            int(path.suffix[1:]): path for path in first.parent.glob(f"{rank}.*") if path.suffix[1:].isdigit()
        }
        return ({0: first} if first.exists() else {}) | dict(sorted(later.items()))

    async def read(
        self,
        ref: GroupRef,
        rank: int,
        *,
        first: int = 0,
        before: int | None = None,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """What the rank printed from its `first` start on, up to the one `before`; or the end of the last.

        Raises LogsNotFound if all were asked for and none is kept.
        """
        starts = self.find(ref, rank)
        folders = [starts[n] for n in starts if n >= first and (before is None or n < before)]
        if not folders and first == 0 and before is None:
            raise LogsNotFound(f"rank {rank} of {ref.name} has no log")
        for folder in folders if tail_lines is None else folders[-1:]:
            async with aclosing(
                segments.read(place_of(folder), after=after, tail_lines=tail_lines)
            ) as pieces:
                async for piece in pieces:
                    yield piece

    async def read_on(
        self,
        ref: GroupRef,
        rank: int,
        current: int,
        live: Callable[[], AsyncGenerator[bytes, None]],
        *,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """What the rank printed from its first start to its `current` one, which `live` reads.

        If that is gone by now, it was stopped, and its log is kept. Raises LogsNotFound if there is none.
        """
        try:
            if current and tail_lines is None:
                async with aclosing(self.read(ref, rank, before=current, after=after)) as pieces:
                    async for piece in pieces:
                        yield piece
            async with aclosing(live()) as pieces:
                async for piece in pieces:
                    yield piece
            return
        except self._gone:
            pass
        async with aclosing(
            self.read(ref, rank, first=current, after=after, tail_lines=tail_lines)
        ) as pieces:
            async for piece in pieces:
                yield piece

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

        It is read again if the engine goes away: what is not read now goes with its pod or container. A
        log that cannot be read, or not to its end, is kept as far as it can.
        """
        for pause in (*_KEEP_PAUSES, None):
            failure = await self._write(ref, rank, restarts, read())
            if not isinstance(failure, self._away) or pause is None:
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
    ) -> BackendUnavailable | None:
        """Write what there is of the records, and say why that is not all, if it is not."""
        failure: BackendUnavailable | None = None
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
            except BackendUnavailable as error:
                failure = error
            finally:
                writer.close()
            if not path.exists() or writer.end > segments.end(place_of(path)):
                if path.exists():
                    path.rename(before)
                aside.rename(path)
        except OSError as error:
            log.warning("the log of rank %d of %s is not kept: %s", rank, ref.name, error)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(before, ignore_errors=True)
        return failure
