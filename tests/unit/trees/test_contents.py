"""Files of a tree are read for engines in bounded pieces, and only if they match their hashes."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from job_tracker.domain.errors import TreeDamaged
from job_tracker.trees.contents import PIECE, read_in_threads
from job_tracker.trees.store import ProjectTrees, TreeStore
from tests.support.trees import FILES, manifest_of, put, sha256_of

LARGE = {"a/b/large": bytes(range(256)) * (3 * PIECE // 256 + 1), "odd": b"x" * 513, "empty": b""}


@pytest.fixture
def trees(tmp_path: Path) -> ProjectTrees:
    return TreeStore(tmp_path / "programs").of("default")


def damage(trees: ProjectTrees, content: bytes, by: bytes | None) -> None:
    blob = (trees.blobs / sha256_of(content)).path
    blob.unlink() if by is None else blob.write_bytes(by)


@pytest.mark.parametrize("files", [FILES, LARGE], ids=["small", "large"])
def test_an_archive_has_the_files_for_any_user(trees: ProjectTrees, files: dict[str, bytes]) -> None:
    archive = b"".join(trees.archive(put(trees, files), "work"))
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        members = opened.getmembers()
        found = {each.name: opened.extractfile(each).read() for each in members if each.isfile()}  # type: ignore[union-attr]
    assert found == {f"work/{path}": content for path, content in files.items()}
    assert {each.mode for each in members if each.isdir()} == {0o777}
    assert all(each.isfile() or each.isdir() for each in members)
    assert members[0].name == "work", "folders come before what is in them"
    executable = {each.name for each in members if each.isfile() and each.mode & 0o100}
    assert executable == {f"work/{path}" for path in files if path.endswith(".sh")}


def test_long_and_odd_names_are_archived(trees: ProjectTrees) -> None:
    names = ["größe/日本 x.py", "d" * 200 + "/" + "n" * 200, "-rf"]
    archive = b"".join(trees.archive(put(trees, dict.fromkeys(names, b"x")), "work"))
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        assert sorted(each.name for each in opened if each.isfile()) == sorted(
            f"work/{name}" for name in names
        )


def test_a_stream_has_the_manifest_and_then_the_files_in_its_order(trees: ProjectTrees) -> None:
    tree = put(trees, FILES)
    whole = b"".join(trees.stream(tree))
    manifest, _, contents = whole.partition(b"\n\n")
    assert hashlib.sha256(manifest + b"\n").hexdigest() == tree
    assert contents == b"".join(FILES[path] for path in sorted(FILES))


def test_pieces_are_bounded(trees: ProjectTrees) -> None:
    tree = put(trees, LARGE)
    assert max(map(len, trees.archive(tree, "work"))) <= PIECE
    assert max(map(len, trees.stream(tree))) <= PIECE


@pytest.mark.parametrize(
    "by",
    [None, b"print('stolen')", b"", b"print('hello')\nprint('more')\n"],
    ids=["gone", "changed", "cut", "longer"],
)
@pytest.mark.parametrize("way", ["archive", "stream"])
def test_a_file_that_is_not_what_its_hash_says_ends_the_reading(
    trees: ProjectTrees, by: bytes | None, way: str
) -> None:
    tree = put(trees, FILES)
    damage(trees, FILES["train.py"], by)
    pieces = trees.archive(tree, "work") if way == "archive" else trees.stream(tree)
    with pytest.raises(TreeDamaged, match=r"train\.py"):
        b"".join(pieces)


def test_a_changed_file_of_the_same_size_is_sent_again_by_the_next_upload(trees: ProjectTrees) -> None:
    tree = put(trees, FILES)
    damage(trees, FILES["train.py"], b"x" * len(FILES["train.py"]))
    with pytest.raises(TreeDamaged):
        b"".join(trees.stream(tree))
    assert [each.sha256 for each in trees.find(tree).missing] == [sha256_of(FILES["train.py"])]


def test_a_tree_without_its_manifest_is_damaged(trees: ProjectTrees) -> None:
    with pytest.raises(TreeDamaged, match="manifest"):
        next(trees.stream(manifest_of(FILES)[0]))


async def test_small_pieces_are_joined(trees: ProjectTrees) -> None:
    tree = put(trees, {**LARGE, **{f"small/{number}": b"%d" % number for number in range(300)}})
    joined = [piece async for piece in read_in_threads(trees.stream(tree))]
    assert b"".join(joined) == b"".join(trees.stream(tree))
    assert len(joined) <= 5


async def test_a_reading_that_is_given_up_is_closed() -> None:
    closed = threading.Event()

    def endless() -> Generator[bytes, None, None]:
        try:
            while True:
                yield bytes(PIECE)
        finally:
            closed.set()

    pieces = read_in_threads(endless())
    assert len(await anext(pieces)) == PIECE
    await pieces.aclose()
    assert closed.is_set()
