"""The messages of an upload."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from training_service._generated.program_service_pb2 import MissingContent, Piece, TreeStatus
from training_service.client.errors import InvalidRequest, ServerError
from training_service.client.run.sending import Sending
from training_service.client.run.working_tree import WorkingTree, read_folder

LARGE = bytes(range(256)) * 2000


@pytest.fixture
def files(tmp_path: Path) -> WorkingTree:
    (tmp_path / "large.bin").write_bytes(LARGE)
    for number in range(1000):
        (tmp_path / f"{number}.txt").write_text(str(number))
    (tmp_path / "empty").touch()
    return read_folder(tmp_path)


def missing(files: WorkingTree, **received: int) -> TreeStatus:
    of_files = [
        MissingContent(sha256=file.sha256, size=file.size, received=received.get(Path(file.path).stem, 0))
        for file in files.files
    ]
    return TreeStatus(tree=files.name, is_known=True, missing=of_files)


def pieces(sending: Sending, contents: Sequence[MissingContent]) -> list[Piece]:
    messages = list(sending.contents(contents))
    assert [bool(message.tree) for message in messages] == [True] + [False] * (len(messages) - 1)
    assert all(message.ByteSize() <= 256 * 1024 for message in messages)
    return [piece for message in messages for piece in message.pieces]


def test_all_contents_are_sent_in_small_messages(files: WorkingTree) -> None:
    status = missing(files)
    sent: dict[str, bytes] = {}
    for piece in pieces(Sending(files, None), status.missing):
        assert piece.offset == len(sent.get(piece.sha256, b""))
        sent[piece.sha256] = sent.get(piece.sha256, b"") + piece.content
    assert sent == {file.sha256: file.place.read_bytes() for file in files.files}


def test_only_the_rest_is_sent(files: WorkingTree) -> None:
    [large] = [each for each in missing(files, large=500_000).missing if each.received]
    [piece] = pieces(Sending(files, None), [large])
    assert (piece.offset, piece.content) == (500_000, LARGE[500_000:])
    large.received = len(LARGE)
    [piece] = pieces(Sending(files, None), [large])
    assert (piece.offset, piece.content) == (len(LARGE), b"")


def test_the_manifest_is_sent_in_pieces(files: WorkingTree) -> None:
    parts = list(Sending(files, None).manifest())
    assert b"".join(part.content for part in parts) == files.manifest


def test_progress_counts_what_had_arrived_before(files: WorkingTree) -> None:
    shown: list[tuple[int, int]] = []
    sending = Sending(files, lambda sent, total: shown.append((sent, total)))
    status = missing(files)
    sending.advances(status)
    pieces(sending, status.missing)
    assert shown[-1] == (files.size, files.size)
    assert shown == sorted(shown)


def test_a_call_that_brings_nothing_ends_the_upload(files: WorkingTree) -> None:
    sending = Sending(files, None)
    status = missing(files)
    assert sending.advances(status)
    assert not sending.advances(status)
    with pytest.raises(ServerError, match="does not keep them"):
        sending.check_advance(status)
    (files.folder / "large.bin").write_bytes(b"short")
    assert (
        pieces(sending, [each for each in status.missing if each.size == len(LARGE)])[0].content == b"short"
    )
    with pytest.raises(InvalidRequest, match=r"large\.bin changed while the files were sent"):
        sending.check_advance(status)
    (files.folder / "large.bin").unlink()
    assert pieces(sending, [each for each in status.missing if each.size == len(LARGE)]) == []
