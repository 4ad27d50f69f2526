"""The messages of an upload, for the plain and the asyncio client."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from training_service._generated.program_service_pb2 import (
    MissingContent,
    Piece,
    PutManifestRequest,
    TreeStatus,
    UploadFilesRequest,
)
from training_service.client.errors import InvalidRequest, ServerError
from training_service.client.run.opening import open_content
from training_service.client.run.working_tree import LocalFile, WorkingTree

_MESSAGE = 240 * 1024
"""The most bytes of content in a message; the service accepts 256 KiB."""
_PIECES = 512
_NAMED = 5
_CALL = 256 << 20
"""The most bytes of content in a call. Larger uploads make several calls: the service checks at each call
whether the caller may upload.
"""

OnProgress = Callable[[int, int], None]
"""A function that is called with the number of bytes sent so far, and the number of bytes to send in all."""


class Sending:
    """The upload of one tree, over any number of calls."""

    def __init__(self, files: WorkingTree, on_progress: OnProgress | None) -> None:
        self.files = files
        self._on_progress = on_progress
        self._total: int | None = None
        self._left: tuple[int, int] | None = None

    def manifest(self) -> Iterator[PutManifestRequest]:
        """Yield the messages of the call PutManifest."""
        text = self.files.manifest
        for begin in range(0, len(text), _MESSAGE):
            yield PutManifestRequest(tree=self.files.name, content=text[begin : begin + _MESSAGE])

    def advances(self, status: TreeStatus) -> bool:
        """Return whether the service has more content than at the previous status.

        The first status counts as an advance.
        """
        before = self._left
        self._left = (
            sum(each.size - each.received for each in status.missing),
            len(status.missing),
        )
        if self._total is None:
            self._total = self._left[0]
        return before is None or self._left < before

    def check_advance(self, status: TreeStatus) -> None:
        """Raise an error if a successful call has added no content to the tree.

        The error is InvalidRequest if a file has changed since it was read, otherwise ServerError.
        """
        if not self.advances(status):
            self.check_unchanged()
            raise ServerError("the service accepts the files of the program, but does not keep them")

    def check_unchanged(self) -> None:
        """Raise InvalidRequest if a file has changed since it was read."""
        if changed := self.files.changed():
            raise InvalidRequest(
                f"{', '.join(changed[:_NAMED])} changed while the files were sent; run the command again"
            )

    def contents(self, missing: Sequence[MissingContent]) -> Iterator[UploadFilesRequest]:
        """Yield the messages of one call of UploadFiles: the missing content, up to about _CALL bytes."""
        message, size, sent = UploadFilesRequest(tree=self.files.name), 0, 0
        for piece in self._pieces(missing):
            if size + len(piece.content) > _MESSAGE or len(message.pieces) >= _PIECES:
                yield message
                sent += size
                self._show(sent)
                if sent >= _CALL:
                    return
                message, size = UploadFilesRequest(), 0
            message.pieces.append(piece)
            size += len(piece.content)
        yield message
        self._show(sent + size)

    def _pieces(self, missing: Sequence[MissingContent]) -> Iterator[Piece]:
        for each in missing:
            file = self.files.by_content.get(each.sha256)
            if file is not None:
                yield from _pieces_of(file, each.received)

    def _show(self, sent: int) -> None:
        if self._on_progress is not None and self._total is not None and self._left is not None:
            self._on_progress(self._total - self._left[0] + sent, self._total)


def _pieces_of(file: LocalFile, offset: int) -> Iterator[Piece]:
    """Yield the content of a file from `offset` on.

    The content ends early if the file was removed or truncated; see check_advance.
    """
    if offset == file.size:
        yield Piece(sha256=file.sha256, offset=offset)
        return
    with suppress(OSError), open_content(file.place) as content:
        content.seek(offset)
        while data := content.read(min(_MESSAGE, file.size - offset)):
            yield Piece(sha256=file.sha256, offset=offset, content=data)
            offset += len(data)
