"""Where logs of stopped groups wait on this machine until they are in storage."""

import asyncio
import logging
import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from job_tracker.domain import naming
from job_tracker.domain.errors import BackendUnavailable, LogsNotFound
from job_tracker.domain.group import GroupRef
from job_tracker.files.untrusted import place_of
from job_tracker.logs import segments
from job_tracker.logs.records import BEGINNING
from job_tracker.logs.writing import LogWriter

log = logging.getLogger(__name__)

_GONE = "gone"
_KEEP_PAUSES = (0.2, 1.0)  # seconds between tries to read a log whose pod or container is about to go


class Spool(Protocol):
    """Logs of stopped groups on their way to storage."""

    async def waiting(self) -> Sequence[GroupRef]:
        """The stopped groups whose logs are on this machine."""
        ...

    def read(self, group: GroupRef, rank: int) -> AsyncGenerator[bytes, None]:
        """What the rank printed; see LiveLogs."""
        ...

    async def drop(self, group: GroupRef) -> None:
        """Forget what a stopped group printed, but for what is kept of it for people. Idempotent."""
        ...


class FolderSpool:
    """See Spool. For backends whose instances take their logs with them: a stop copies these to here.

    They are in <root>/<store>.<group>.<job id>.<attempt>/<rank>; in folders without a store if an earlier
    version kept them. Those of other stores are left alone.

    Of a rank that was started anew each start has one of its own: <rank>, <rank>.1, <rank>.2, …
    """

    def __init__(self, root: Path, most_log: int, store_id: str = "") -> None:
        """Of each rank's log, `most_log` bytes are kept."""
        self._root = root
        self.most_log = most_log
        self._store_id = store_id
        self.lives: Callable[[GroupRef], bool] = lambda _: False
        """Whether more may come of a group, which is then not waiting yet. The backend sets it."""

    def find(self, ref: GroupRef, rank: int) -> dict[int, Path]:
        """The folders of a rank's logs, by how often it had been started anew; as far as they were kept."""
        places = (self._folder(ref),) if ref.home else (self._old_folder(ref), self._folder(ref))
        found = {}
        for place in places:
            if (first := place / str(rank)).exists():
                found[0] = first
            for path in place.glob(f"{rank}.*"):
                if path.suffix[1:].isdigit():
                    found[int(path.suffix[1:])] = path
        return dict(sorted(found.items()))

    async def read(
        self,
        group: GroupRef,
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
        starts = self.find(group, rank)
        folders = [starts[n] for n in starts if n >= first and (before is None or n < before)]
        if not folders and first == 0 and before is None:
            raise LogsNotFound(f"rank {rank} of {group.name} has no log")
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
        gone: tuple[type[Exception], ...],
        *,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """What the rank printed from its first start to its `current` one, which `live` reads.

        If that raises one of `gone`, it was stopped, and its log is here. Raises LogsNotFound if not.
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
        except gone:
            pass
        async with aclosing(
            self.read(ref, rank, first=current, after=after, tail_lines=tail_lines)
        ) as pieces:
            async for piece in pieces:
                yield piece

    async def waiting(self) -> Sequence[GroupRef]:
        return [group for group in self._groups() if not self.lives(group)]

    def _groups(self) -> list[GroupRef]:
        found = []
        for path in self._root.glob("*.*.*"):
            *store, name, job_id, attempt = path.name.split(".")
            if not store:
                found.append(GroupRef(name, int(job_id), int(attempt)))
            elif store == [self._store_id]:
                found.append(GroupRef(name, int(job_id), int(attempt), naming.home(self._store_id)))
        return found

    async def keep(
        self,
        ref: GroupRef,
        rank: int,
        restarts: int,
        read: Callable[[], AsyncGenerator[bytes, None]],
        *,
        again_after: tuple[type[BackendUnavailable], ...] = (),
    ) -> bool:
        """Keep the records that `read` gives, from the log's beginning on, unless there are more already.

        It is read again after one of these errors: what is not read now goes with its pod or container. A
        log that cannot be read to its end is kept as far as it can be; the answer is whether it was.
        """
        for pause in (*_KEEP_PAUSES, None):
            failure = await self._write(ref, rank, restarts, read())
            if not isinstance(failure, again_after) or pause is None:
                break
            await asyncio.sleep(pause)
        if failure is not None:
            log.warning("the log of rank %d of %s may not be whole: %s", rank, ref.name, failure)
        return failure is None

    async def drop(self, group: GroupRef) -> None:
        """See Spool. All of a group's logs go at once: half of one would be taken for all of it."""
        old = self._old_folder(group)
        folder = self._folder(group) if group.home or not old.exists() else old
        await asyncio.to_thread(self._remove, folder)

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

    def _folder(self, ref: GroupRef) -> Path:
        """Where logs are kept: engines do not say of a group whether its job has a home."""
        old = self._old_folder(ref)
        return old.with_name(f"{self._store_id}.{old.name}") if self._store_id else old

    def _old_folder(self, ref: GroupRef) -> Path:
        """Where the versions kept logs that did not know stores by an id."""
        return self._root / f"{ref.name}.{ref.job_id}.{ref.attempt}"

    async def _write(
        self, ref: GroupRef, rank: int, restarts: int, pieces: AsyncGenerator[bytes, None]
    ) -> BackendUnavailable | None:
        """Write what there is of the records, and say why that is not all, if it is not."""
        path = self._folder(ref) / (f"{rank}.{restarts}" if restarts else str(rank))
        async with aclosing(pieces):
            try:
                first = await anext(pieces, b"")
            except BackendUnavailable as error:
                return error  # nothing was read, so there is nothing to write
            try:
                return await self._write_to(path, first, pieces)
            except OSError as error:
                log.warning("the log of rank %d of %s is not kept: %s", rank, ref.name, error)
                return None

    async def _write_to(
        self, path: Path, first: bytes, pieces: AsyncGenerator[bytes, None]
    ) -> BackendUnavailable | None:
        """Write a log, in place of the one that is there if that is no longer. Raises OSError."""
        failure: BackendUnavailable | None = None
        aside, before = path.with_name(f"{path.name}.new"), path.with_name(f"{path.name}.old")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.rmtree(aside, ignore_errors=True)
            writer = LogWriter(str(aside), self.most_log)
            try:
                writer.write(first)
                async for piece in pieces:
                    writer.write(piece)
            except BackendUnavailable as error:
                failure = error
            finally:
                writer.close()
            _replace(path, aside, before)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(before, ignore_errors=True)
        return failure


def _replace(path: Path, aside: Path, before: Path) -> None:
    """Put the log that is `aside` in place, unless the one that is there is as long."""
    if path.exists():
        if segments.end(place_of(aside)) <= segments.end(place_of(path)):
            return
        path.rename(before)
    aside.rename(path)
