"""The spool: logs of stopped groups on this machine, until they are in storage."""

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
_KEEP_PAUSES = (0.2, 1.0)  # seconds between tries, before the pod or container is removed


class Spool(Protocol):
    """Logs of stopped groups on their way to storage."""

    async def waiting(self) -> Sequence[GroupRef]:
        """Return the stopped groups whose logs are in the spool."""
        ...

    def read(self, group: GroupRef, rank: int) -> AsyncGenerator[bytes, None]:
        """Yield the log of a rank; see LiveLogs."""
        ...

    async def drop(self, group: GroupRef) -> None:
        """Delete the logs of a stopped group, except files kept for inspection. May be repeated."""
        ...


class FolderSpool:
    """A spool for backends whose logs disappear with the instance. Before that, logs are copied to the spool.

    Logs are in <root>/<store>.<group>.<job id>.<attempt>/<rank>; earlier versions left out <store>. Logs of
    other stores are not touched. Each start of a restarted rank has its own log: <rank>, <rank>.1, and so on.
    """

    def __init__(self, root: Path, most_log: int, store_id: str = "") -> None:
        """`most_log` is the largest size of each log, in bytes."""
        self._root = root
        self.most_log = most_log
        self._store_id = store_id
        self.lives: Callable[[GroupRef], bool] = lambda _: False
        """Returns whether a group still runs. If so, its logs are not moved to storage yet.

        The backend sets this function.
        """

    def find(self, ref: GroupRef, rank: int) -> dict[int, Path]:
        """Return the folders of a rank's logs, one for each start, by the number of restarts before it."""
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
        """Yield the logs of a rank's starts, in order.

        The first start has the number 0, and each restart the next number. Starts before `first` are left
        out. If `before` is given, so are this start and later ones. With `tail_lines`, yield only the last
        `tail_lines` lines of the last start. Raises LogsNotFound if there is no log, unless `first` or
        `before` selects a part of the log.
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
        """Yield the log of a rank: earlier starts from the spool, then the `current` start from `live`.

        With `tail_lines`, earlier starts are left out. If `live` raises one of `gone`, the rank was stopped,
        and the `current` start is read from the spool. If the spool does not have this start either, nothing
        more is yielded; but if `current` is 0, LogsNotFound is raised.
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
                found.append(GroupRef(name, int(job_id), int(attempt), naming.home_in_store(self._store_id)))
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
        """Copy to the spool the log that `read` yields, unless the log in the spool is at least as long.

        Return whether the engine yielded the whole log: False if an error of the engine ended it early. An
        error of this machine's disk is only logged. Records that were read before an error or a cancellation
        are kept. After an error of a type in `again_after`, the log is read again, at most twice, since the
        log is lost once its pod or container is removed.
        """
        for pause in (*_KEEP_PAUSES, None):
            failure = await self._write(ref, rank, restarts, read())
            if not isinstance(failure, again_after) or pause is None:
                break
            await asyncio.sleep(pause)
        if failure is not None:
            log.warning("the log of rank %d of %s may be incomplete: %s", rank, ref.name, failure)
        return failure is None

    async def drop(self, group: GroupRef) -> None:
        """See Spool. The logs are first moved away as one folder: a half-deleted log would look complete."""
        old = self._old_folder(group)
        folder = self._folder(group) if group.home or not old.exists() else old
        await asyncio.to_thread(self._remove, folder)

    async def sweep(self) -> None:
        """Complete the deletions that a killed service began."""
        for folder in (self._root / _GONE).glob("*"):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _remove(self, folder: Path) -> None:
        gone = self._root / _GONE / uuid4().hex
        gone.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _folder(self, ref: GroupRef) -> Path:
        """Return the folder of a group. It does not depend on `ref.home`, which engines do not report."""
        old = self._old_folder(ref)
        return old.with_name(f"{self._store_id}.{old.name}") if self._store_id else old

    def _old_folder(self, ref: GroupRef) -> Path:
        """Return the folder that earlier versions, whose stores had no ids, used for the group."""
        return self._root / f"{ref.name}.{ref.job_id}.{ref.attempt}"

    async def _write(
        self, ref: GroupRef, rank: int, restarts: int, pieces: AsyncGenerator[bytes, None]
    ) -> BackendUnavailable | None:
        """Write the records. Return the engine's error that ended the log early, or None."""
        path = self._folder(ref) / (f"{rank}.{restarts}" if restarts else str(rank))
        async with aclosing(pieces):
            try:
                first = await anext(pieces, b"")
            except BackendUnavailable as error:
                return error  # nothing was read
            try:
                return await self._write_to(path, first, pieces)
            except OSError as error:
                log.warning("the log of rank %d of %s is not kept: %s", rank, ref.name, error)
                return None

    async def _write_to(
        self, path: Path, first: bytes, pieces: AsyncGenerator[bytes, None]
    ) -> BackendUnavailable | None:
        """Write a log, which replaces an existing log only if the new one is longer. Raises OSError.

        Return the error that ended the log early, or None.
        """
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
            finally:  # after a cancellation, too: the engine may have no log later
                writer.close()
                _replace(path, aside, before)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(before, ignore_errors=True)
        return failure


def _replace(path: Path, aside: Path, before: Path) -> None:
    """Move the log at `aside` to `path`, unless `path` has a log that is at least as long.

    A shorter log at `path` is moved to `before`.
    """
    if path.exists():
        if segments.end(place_of(aside)) <= segments.end(place_of(path)):
            return
        path.rename(before)
    aside.rename(path)
