"""Group commit: one thread writes, and commits all waiting operations with one sync of the disk."""

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from job_tracker.domain.errors import StoreLost, StoreUnavailable, TrackerError

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Operation = Callable[[sqlite3.Connection], Result]

_LARGEST_BATCH = 512
_LOAD = 8
"""If a commit has n operations, and n is at least this number, the next commit waits for n operations."""
_PATIENCE = 0.01
"""The longest time, in seconds, that a commit waits for operations."""
_DAMAGED = frozenset((sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))


@dataclass(slots=True)
class _Pending:
    operation: Operation[Any]
    done: asyncio.Future[Any]
    committed: Callable[[Any], None]
    outcome: Any = None
    error: Exception | None = None
    is_written: bool = False
    """Whether the write was committed, but the caller gets an error, since the commit may not be durable.

    Readers may already see such a write. False after a commit without an error.
    """


class Rows(Protocol):
    """Rows that the operations of a transaction add, and that are inserted together."""

    def begin(self) -> None:
        """Forget the rows of an earlier transaction, which may have been rolled back."""
        ...

    def write(self, db: sqlite3.Connection) -> None:
        """Insert the rows."""
        ...


class GroupCommitter:
    """Runs operations in order, each atomically, on the only connection that writes.

    The operations that come during a commit wait for the next commit. A commit takes as much CPU time as
    about ten operations. So under load, a commit first waits for a short time, until there are as many
    operations as in the previous commit. An operation must check first and write afterwards: an operation
    that raises a TrackerError must not have written. The result of an operation reaches the caller once the
    write is durable.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        check: Callable[[], None] = lambda: None,
        rows: Rows | None = None,
    ) -> None:
        """`rows` are inserted at the end of each transaction, after its operations.

        `check` is called before each commit, and again after the commit, before any caller is answered. It
        raises StoreUnavailable if this commit may not be durable, and StoreLost if later commits cannot be
        durable, either.
        """
        self._connection = connection
        self._check = check
        self._rows = rows
        self._lost: StoreLost | None = None
        self._loop = asyncio.get_running_loop()
        self._batches: queue.SimpleQueue[list[_Pending] | None] = queue.SimpleQueue()
        # Only the event loop uses these attributes.
        self._waiting: list[_Pending] = []
        self._expected = 1
        self._next: asyncio.Handle | None = None
        self._is_committing = False
        self._closed = False
        self._thread = threading.Thread(target=self._write, name="sqlite-writer", daemon=True)
        self._thread.start()

    async def run(
        self, operation: Operation[Result], committed: Callable[[Result], None] = lambda _: None
    ) -> Result:
        """Run the operation, and return its result once the write is durable.

        Raises the operation's error, or StoreUnavailable.

        `committed` is called with the result on the event loop, before the caller gets the result, and even
        if the caller was cancelled. It is also called if the commit may not be durable, since readers can
        already see this commit.
        """
        if self._closed:
            raise StoreUnavailable("the store is closed")
        pending = _Pending(operation, self._loop.create_future(), committed)
        self._waiting.append(pending)
        self._commit_if_ready()
        result: Result = await pending.done
        return result

    async def close(self) -> None:
        """Commit the waiting operations, and end the thread."""
        self._closed = True
        while self._waiting:
            self._commit_soon()
        self._batches.put(None)
        await asyncio.to_thread(self._thread.join)

    def _commit_if_ready(self) -> None:
        if self._is_committing or not self._waiting:
            return
        if len(self._waiting) < self._expected:
            self._next = self._next or self._loop.call_later(_PATIENCE, self._commit_soon)
        elif len(self._waiting) == self._expected or self._next is None:
            self._forget_next()
            # The commit does not begin at once, so that other callers which the event loop is about to run
            # can share it.
            self._next = self._loop.call_soon(self._commit_soon)

    def _commit_soon(self) -> None:
        """Pass the waiting operations to the thread."""
        self._forget_next()
        batch, self._waiting = self._waiting[:_LARGEST_BATCH], self._waiting[_LARGEST_BATCH:]
        self._is_committing = True
        self._batches.put(batch)

    def _forget_next(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _committed(self, batch: list[_Pending]) -> None:
        self._is_committing = False
        self._expected = len(batch) if len(batch) >= _LOAD else 1
        self._commit_if_ready()
        _settle(batch)

    def _write(self) -> None:
        while (batch := self._batches.get()) is not None:
            self._commit_checked(batch)
            self._loop.call_soon_threadsafe(self._committed, batch)

    def _commit_checked(self, batch: list[_Pending]) -> None:
        is_written = False
        try:
            if self._lost is None:
                self._check()  # a write would hide that a file was truncated
                self._commit(batch)
                is_written = True
                self._check()
                return
            problem: StoreUnavailable = self._lost
        except StoreLost as error:
            problem = self._lost = error
        except StoreUnavailable as error:
            problem = error
        except Exception as error:  # if this thread ended, callers would wait for ever
            log.exception("a commit failed unexpectedly")
            problem = StoreUnavailable(f"the job store cannot write: {error!r}")
        for pending in batch:
            pending.is_written = is_written and pending.error is None
            pending.error = type(problem)(str(problem))

    def _commit(self, batch: list[_Pending]) -> None:
        try:
            self._transact(batch)
        except Exception:
            # Repeat each operation alone, so that the failure of one operation does not affect the others.
            for pending in batch:
                try:
                    self._transact([pending])
                except sqlite3.Error as error:
                    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
                        raise self._damaged(error) from error
                    pending.error = StoreUnavailable(f"the job store cannot write: {error}")
                except Exception as error:
                    pending.error = error

    @staticmethod
    def _damaged(error: sqlite3.Error) -> StoreLost:
        explanation = (
            f"the job store or its disk is damaged ({error}). The service accepts no more jobs, and ends; "
            "running groups are not touched. Check the disk, and start the service again: it then says "
            "whether the store is whole, or must be restored from a backup"
        )
        log.critical("%s", explanation)
        return StoreLost(explanation)

    def _transact(self, batch: list[_Pending]) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            if self._rows is not None:
                self._rows.begin()
            for pending in batch:
                pending.outcome = pending.error = None
                try:
                    pending.outcome = pending.operation(connection)
                except TrackerError as error:
                    pending.error = error
            if self._rows is not None:
                self._rows.write(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _settle(batch: list[_Pending]) -> None:
    for pending in batch:
        if pending.error is None or pending.is_written:
            pending.committed(pending.outcome)
        if pending.done.cancelled():  # the caller was cancelled, but the write is committed
            continue
        if pending.error is not None:
            pending.done.set_exception(pending.error)
        else:
            pending.done.set_result(pending.outcome)
