"""Uploads continue where they were cut, do not disturb each other, and leave nothing broken."""

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest

from job_tracker.domain.errors import InvalidField, LimitExceeded, UnknownReference
from job_tracker.files.untrusted import Place
from job_tracker.trees.store import Missing, ProjectTrees, TreeStore
from job_tracker.trees.uploads import _WAITING, Upload
from tests.support.patience import PATIENCE
from tests.support.trees import manifest_of, send, sha256_of

CONTENT = bytes(range(256)) * 10
HASH = sha256_of(CONTENT)
TREE, TEXT = manifest_of({"model.bin": CONTENT, "empty": b""})


@pytest.fixture
def trees(tmp_path: Path) -> ProjectTrees:
    trees = TreeStore(tmp_path / "programs").of("vision")
    trees.put(TREE, TEXT)
    return trees


@pytest.fixture
def uploads(trees: ProjectTrees) -> Iterator[list[Upload]]:
    """Two uploads of the tree at the same time."""
    with ExitStack() as stack:
        made = [Upload(trees, TREE) for _ in range(2)]
        for upload in made:
            stack.callback(upload.close)
        yield made


def is_whole(trees: ProjectTrees, tmp_path: Path) -> bool:
    trees.unpack(TREE, Place(tmp_path, ("copy",)))
    return (tmp_path / "copy" / "model.bin").read_bytes() == CONTENT


def open_files() -> set[str]:
    return {each.name for each in Path("/proc/self/fd").iterdir()}


def test_an_upload_that_was_cut_continues_where_it_was(trees: ProjectTrees, tmp_path: Path) -> None:
    first = Upload(trees, TREE)
    first.write(HASH, 0, CONTENT[:1000])
    first.write(HASH, 1000, CONTENT[1000:1500])
    first.close()  # without finish, as when the connection breaks
    assert Missing(HASH, len(CONTENT), 1500) in trees.find(TREE).missing
    second = Upload(trees, TREE)
    second.write(HASH, 1500, CONTENT[1500:])
    second.write(sha256_of(b""), 0, b"")
    assert second.finish().is_complete
    second.close()
    assert is_whole(trees, tmp_path)


def test_an_upload_that_cannot_begin_leaves_no_open_file(
    trees: ProjectTrees, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status = trees.find(TREE)
    monkeypatch.setattr(trees, "incoming", Place(tmp_path, ("absent",)))
    before = open_files()
    with pytest.raises(FileNotFoundError):
        trees.find(TREE)
    assert open_files() == before
    monkeypatch.setattr(trees, "find", lambda _: status)
    with pytest.raises(FileNotFoundError):
        Upload(trees, TREE)
    assert open_files() == before


def test_a_content_that_was_whole_before_the_crash_is_not_sent_again(trees: ProjectTrees) -> None:
    (trees.incoming / HASH).path.write_bytes(CONTENT)  # as after a kill -9 before it was moved
    assert Missing(HASH, len(CONTENT), len(CONTENT)) in trees.find(TREE).missing
    upload = Upload(trees, TREE)
    upload.write(HASH, len(CONTENT), b"")
    upload.write(sha256_of(b""), 0, b"")
    assert upload.finish().is_complete
    upload.close()


def test_a_piece_that_overlaps_adds_only_what_is_new(trees: ProjectTrees, tmp_path: Path) -> None:
    upload = Upload(trees, TREE)
    upload.write(HASH, 0, CONTENT[:1000])
    upload.write(HASH, 500, CONTENT[500:])
    upload.write(sha256_of(b""), 0, b"")
    assert upload.finish().is_complete
    upload.close()
    assert is_whole(trees, tmp_path)


def test_two_uploads_of_one_tree_do_not_disturb_each_other(
    trees: ProjectTrees, uploads: list[Upload], tmp_path: Path
) -> None:
    for begin in range(0, len(CONTENT), 512):
        for upload in uploads:
            upload.write(HASH, begin, CONTENT[begin : begin + 512])
    for upload in uploads:
        upload.write(sha256_of(b""), 0, b"")
        assert upload.finish().is_complete
    assert is_whole(trees, tmp_path)
    assert trees.incoming.names(9) == []


def test_an_upload_continues_after_what_another_one_is_writing(
    trees: ProjectTrees, uploads: list[Upload], tmp_path: Path
) -> None:
    one, other = uploads
    one.write(HASH, 0, CONTENT[:1500])
    assert Missing(HASH, len(CONTENT), 1500) in trees.find(TREE).missing
    other.write(HASH, 1500, CONTENT[1500:])
    other.write(sha256_of(b""), 0, b"")
    assert other.finish().is_complete
    one.write(HASH, 1500, CONTENT[1500:])
    assert one.finish().is_complete
    assert is_whole(trees, tmp_path)


def test_a_content_that_another_upload_has_completed_meanwhile_is_dropped(
    trees: ProjectTrees, uploads: list[Upload]
) -> None:
    one, other = uploads
    one.write(HASH, 0, CONTENT)
    one.finish()
    other.write(HASH, 0, b"whatever" * 10)  # this content is not even looked at
    assert [each.size for each in other.finish().missing] == [0]


def test_a_content_that_another_upload_has_given_up_is_begun_again(
    trees: ProjectTrees, uploads: list[Upload], tmp_path: Path
) -> None:
    one, other = uploads
    with pytest.raises(InvalidField, match="has the SHA-256"):
        one.write(HASH, 0, b"x" * len(CONTENT))
    other.write(HASH, 0, CONTENT)
    other.write(sha256_of(b""), 0, b"")
    assert other.finish().is_complete
    assert is_whole(trees, tmp_path)


def test_a_content_with_another_hash_is_refused_and_nothing_of_it_stays(trees: ProjectTrees) -> None:
    upload = Upload(trees, TREE)
    upload.write(HASH, 0, CONTENT[:-1])
    with pytest.raises(InvalidField, match="may have changed while it was read; send it again"):
        upload.write(HASH, len(CONTENT) - 1, b"!")
    upload.close()
    assert trees.incoming.names(9) == trees.blobs.names(9) == []


def test_pieces_out_of_order_too_long_or_of_other_files_are_refused(trees: ProjectTrees) -> None:
    upload = Upload(trees, TREE)
    with pytest.raises(InvalidField, match=f"0 of {len(CONTENT)} bytes"):
        upload.write(HASH, 1, b"x")
    with pytest.raises(InvalidField, match=r"pieces\.offset"):
        upload.write(HASH, 0, CONTENT + b"x")
    with pytest.raises(InvalidField, match=r"pieces\.offset: -1 with 9 bytes"):
        upload.write(HASH, -1, b"x" * 9)
    for foreign in (sha256_of(b"foreign"), "", "../../etc/passwd"):
        with pytest.raises(InvalidField, match="not the SHA-256 of a file"):
            upload.write(foreign, 0, b"x")
    upload.close()
    with pytest.raises(UnknownReference, match="send its manifest first"):
        Upload(trees, "a" * 64)


def test_many_small_files_are_kept(trees: ProjectTrees, tmp_path: Path) -> None:
    files = {f"{number:03}": str(number).encode() for number in range(100)}
    tree, text = manifest_of(files)
    trees.put(tree, text)
    assert send(trees, tree, files.values()).is_complete
    trees.unpack(tree, Place(tmp_path, ("copy",)))


def write_all(upload: Upload) -> None:
    upload.write(HASH, 0, CONTENT)
    upload.write(sha256_of(b""), 0, b"")
    upload.finish()


def test_a_full_disk_is_a_clear_error_and_gets_its_space_back(
    trees: ProjectTrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = Upload(trees, TREE)
    upload.write(HASH, 0, CONTENT[:1000])

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(LimitExceeded, match="the disk is full; free some space"):
            upload.write(HASH, 1000, CONTENT[1000:])
    assert trees.incoming.names(9) == []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(LimitExceeded):
            write_all(upload)
    upload.close()
    assert len(trees.find(TREE).missing) == 2
    assert send(trees, TREE, [CONTENT, b""]).is_complete


def test_a_link_or_pipe_in_the_way_is_replaced(trees: ProjectTrees, tmp_path: Path) -> None:
    os.mkfifo((trees.incoming / HASH).path)
    assert send(trees, TREE, [CONTENT, b""]).is_complete
    assert is_whole(trees, tmp_path)


def test_contents_are_synced_before_they_are_there_and_while_the_next_ones_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"{number}.txt": str(number).encode() for number in range(_WAITING + 20)}
    trees = TreeStore(tmp_path / "programs").of("vision")
    tree, manifest = manifest_of(files)
    trees.put(tree, manifest)
    held, sync, synced = Event(), os.fsync, set[int]()

    def slowly(file: int) -> None:
        held.wait(timeout=PATIENCE)
        synced.add(os.fstat(file).st_ino)
        sync(file)

    monkeypatch.setattr(os, "fsync", slowly)
    upload = Upload(trees, tree)
    contents = list(files.values())
    for content in contents[:_WAITING]:
        upload.write(sha256_of(content), 0, content)
    assert not trees.blobs.names(999), "no content is there before it is synced"
    held.set()
    for content in contents[_WAITING:]:
        upload.write(sha256_of(content), 0, content)
    assert upload.finish().is_complete
    upload.close()
    assert {(trees.blobs / name).path.stat().st_ino for name in trees.blobs.names(999)} <= synced
