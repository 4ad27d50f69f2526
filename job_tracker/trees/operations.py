"""The API's operations on uploaded trees. They do not depend on the API's protocol."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from job_tracker.common.clock import utc_now
from job_tracker.common.printable import quoted
from job_tracker.common.tasks import end
from job_tracker.common.turns import FairTurns
from job_tracker.domain.audit import EventObserver, ignore_event
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import Forbidden, InvalidField, LimitExceeded, UnknownProject
from job_tracker.domain.guard import Guard
from job_tracker.domain.policies import ProjectLimits
from job_tracker.trees import changes
from job_tracker.trees.manifest import FIELD, is_tree
from job_tracker.trees.store import ProjectTrees, TreeStatus, TreeStore
from job_tracker.trees.uploads import Upload

T = TypeVar("T")

_AT_ONCE, _OF_ONE_CALLER = 8, 6
_READ_AHEAD = 8
"""The largest number of messages that wait while earlier messages are written."""
_PATIENCE_SECONDS = 60.0
_MOST_SECONDS = 600.0
_SHARE_SECONDS = 10.0
_LOOKS = 10


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the content of a file."""

    sha256: str
    offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Pieces:
    """Parts of the contents of a tree. Only the first message of an upload has the tree's name."""

    tree: str
    pieces: tuple[Piece, ...]


class UploadTooLong(LimitExceeded):
    """An upload was ended because it took too long.

    The caller continues with a new call, in which its rights are checked again.
    """


class Programs:
    """Receives the trees that callers upload for the jobs of their default projects.

    Each method with a `caller` raises Forbidden if the caller's role does not allow the call or the service
    runs no uploaded programs, and UnknownProject if the caller's default project does not exist. These
    methods may also raise LimitExceeded and StorageUnavailable.
    """

    def __init__(
        self,
        store: TreeStore,
        *,
        limits_of: Callable[[str], ProjectLimits | None],
        refusal: str = "",
        patience: float = _PATIENCE_SECONDS,
        most_seconds: float = _MOST_SECONDS,
        share_seconds: float = _SHARE_SECONDS,
        clock: Callable[[], datetime] = utc_now,
        note: EventObserver = ignore_event,
    ) -> None:
        """`refusal` is the reason why the service runs no uploaded programs.

        Empty: the service runs them. An upload ends if no message comes for `patience` seconds, or after
        `most_seconds`. While uploads wait for a turn, FairTurns.wanted names the callers that have to give
        up a turn. The oldest upload of such a caller ends once it has lasted `share_seconds`. `note` gets an
        event for each denial.
        """
        self._store = store
        self._refusal = refusal
        self._limits_of = limits_of
        self._patience = patience
        self._guard = Guard(note, clock)
        self._lookups = FairTurns(_AT_ONCE, _OF_ONE_CALLER)
        self._uploads = _Uploads(most_seconds, share_seconds)

    async def find_tree(self, caller: Caller, tree: str) -> TreeStatus:
        """Return which parts of a tree are stored. The call counts as a use of the tree.

        Raises InvalidField if `tree` cannot be the name of a tree.
        """
        self._check(caller, "find_tree")
        await self._lookups.take(caller.key)
        try:
            return await asyncio.to_thread(self._store.of(caller.default_project).find, tree)
        finally:
            self._lookups.give(caller.key)

    async def put_manifest(self, caller: Caller, parts: AsyncIterator[tuple[str, bytes]]) -> TreeStatus:
        """Store a manifest, and return which contents are missing.

        The manifest comes in parts. Only the first part has the tree's name. Raises InvalidField if the
        manifest is not allowed or belongs to another tree. For the other errors, see Programs.
        """
        self._check(caller, "put_manifest")
        most = self._store.limits.max_manifest
        async with self._uploads.turn(caller):
            tree, text = "", bytearray()
            while (part := await self._next(parts)) is not None:
                tree = tree or part[0]
                text += part[1]
                if len(text) > most:
                    raise InvalidField(FIELD, f"it has more than {most} bytes; send fewer files")
            trees = self._store.of(caller.default_project)
            return await asyncio.to_thread(trees.put, tree, bytes(text))

    async def upload_files(self, caller: Caller, messages: AsyncIterator[Pieces]) -> TreeStatus:
        """Store contents of one tree, and return which contents are still missing.

        For the errors, see Upload and Programs.
        """
        self._check(caller, "upload_files")
        async with self._uploads.turn(caller):
            first = await self._next(messages)
            if first is None:
                raise InvalidField(
                    "tree", "the upload has no message; send the name of a tree in the first one"
                )
            async with _opened(self._store.of(caller.default_project), first.tree) as upload:
                writing = _Writing(upload)
                try:
                    message: Pieces | None = first
                    while message is not None:
                        await writing.add(message.pieces)
                        message = await self._next(messages)
                    await writing.end()
                    return await asyncio.to_thread(upload.finish)
                finally:
                    await writing.cancel()

    async def require(self, project: str, tree: str, requirements: str = "") -> None:
        """Check that a job of the project can run in the tree, and record that the tree is used now.

        `requirements` is empty, or the path of a file in the tree. Raises UnknownReference if the tree is
        incomplete or unknown, InvalidField if the tree lacks this file or `tree` cannot be the name of a
        tree, and Forbidden if the service runs no uploaded programs.
        """
        self._check_enabled()
        trees = self._store.of(project)
        await asyncio.to_thread(trees.require, tree)
        if requirements:
            manifest = await asyncio.to_thread(trees.manifest, tree)
            if requirements not in {file.path for file in manifest.files}:
                raise InvalidField(
                    "program.requirements",
                    f"{quoted(requirements)} is not a file of the tree; give its path in the folder, as in "
                    "requirements.txt, and check that git does not ignore it",
                )

    async def use_changes(self, project: str, tree: str) -> None:
        """Record that a job uses a tree of uncommitted changes now. The tree may be incomplete or unknown.

        Raises InvalidField if `tree` cannot be the name of a tree, or if the tree is complete and is not a
        tree of changes. A tree of changes has a single file: a diff of limited size.

        A job does not need the text of its changes, so it may run again after the text was removed.
        """
        if not is_tree(tree):
            raise InvalidField(
                "program.changes.tree", "it must be 64 lower-case hexadecimal digits, the name of a tree"
            )
        trees = self._store.of(project)
        if (await asyncio.to_thread(trees.find, tree)).is_complete:
            changes.check(await asyncio.to_thread(trees.manifest, tree))

    def _check(self, caller: Caller, operation: str) -> None:
        project = caller.default_project
        self._guard.check(caller, operation, project)
        if self._limits_of(project) is None:
            raise UnknownProject(project)
        self._check_enabled()

    def _check_enabled(self) -> None:
        if self._refusal:
            raise Forbidden(f"{self._refusal}; use a configured algorithm")

    async def _next(self, items: AsyncIterator[T]) -> T | None:
        try:
            async with asyncio.timeout(self._patience) as limit:
                return await anext(items, None)
        except TimeoutError:
            if not limit.expired():
                raise
            raise LimitExceeded(
                f"no part of the upload came for {self._patience:g} s; continue with a new call",
                limit="the time of uploads",
            ) from None


@asynccontextmanager
async def _opened(trees: ProjectTrees, tree: str) -> AsyncIterator[Upload]:
    """Open an upload in a thread, and close it at the end of the context.

    It is also closed if the call is cancelled while a thread opens it, or still writes.
    """
    opening = asyncio.create_task(asyncio.to_thread(Upload, trees, tree))
    try:
        yield await asyncio.shield(opening)
    finally:
        await asyncio.shield(_close(opening))


async def _close(opening: "asyncio.Task[Upload]") -> None:
    await asyncio.wait([opening])
    if opening.exception() is None:
        await asyncio.to_thread(opening.result().close)  # waits for a thread that still writes


class _Uploads:
    """The turns of uploads. A turn ends after `most_seconds`.

    It ends earlier, after `share_seconds`, if FairTurns.wanted names its caller. So callers that use all
    turns for slow uploads do not keep others out. To continue an upload that was ended, the caller makes
    another call, which waits for its turn.
    """

    def __init__(self, most_seconds: float, share_seconds: float) -> None:
        self._turns = FairTurns(_AT_ONCE, _OF_ONE_CALLER)
        self._most_seconds = most_seconds
        self._share_seconds = share_seconds
        self._held: dict[asyncio.Timeout, tuple[str, float]] = {}  # caller and start; the oldest first
        self._is_looking = False

    @asynccontextmanager
    async def turn(self, caller: Caller) -> AsyncIterator[None]:
        """Wait for a turn, and hold it within the context. Raises UploadTooLong if the turn ends earlier."""
        who, loop = caller.key, asyncio.get_running_loop()
        if not self._is_looking:
            self._is_looking = True
            loop.call_soon(self._look, loop, context=Context())  # run without the log context of this call
        await self._turns.take(who)
        start = loop.time()
        try:
            async with asyncio.timeout(self._most_seconds) as limit:
                self._held[limit] = who, start
                try:
                    yield
                finally:
                    self._held.pop(limit, None)
        except TimeoutError:
            if not limit.expired():
                raise
            raise UploadTooLong(
                f"the upload took {loop.time() - start:.0f} s, and other uploads have to get a turn, too; "
                "continue with a new call",
                limit="the time of uploads",
            ) from None
        finally:
            self._turns.give(who)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End uploads that hold their turns for too long while others wait. Repeat this while calls wait."""
        wanted = self._turns.wanted()
        self._is_looking = bool(wanted)
        if not wanted:
            return
        loop.call_later(self._share_seconds / _LOOKS, self._look, loop)
        for limit, (who, since) in [*self._held.items()]:
            if since > loop.time() - self._share_seconds:
                break
            if wanted[who] > 0:
                wanted[who] -= 1
                del self._held[limit]
                limit.reschedule(loop.time())


class _Writing:
    """Writes pieces in a thread, in order, while the next pieces arrive."""

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        self._waiting: list[Piece] = []
        self._messages = 0
        self._task: asyncio.Task[None] | None = None

    async def add(self, pieces: Iterable[Piece]) -> None:
        """Write the pieces soon. Raises the errors of earlier pieces."""
        self._waiting += pieces
        self._messages += 1
        if self._task is None or self._task.done() or self._messages >= _READ_AHEAD:
            await self._next()

    async def end(self) -> None:
        """Wait until all pieces are written. Raises their errors."""
        await self._next()
        await self._next()

    async def cancel(self) -> None:
        """Start no further writes. A thread that is writing may continue until the upload is closed."""
        if self._task is not None:
            await end(self._task)

    async def _next(self) -> None:
        if self._task is not None:
            await self._task
        pieces, self._waiting, self._messages = self._waiting, [], 0
        self._task = asyncio.create_task(asyncio.to_thread(_write, self._upload, pieces))


def _write(upload: Upload, pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        upload.write(piece.sha256, piece.offset, piece.content)
