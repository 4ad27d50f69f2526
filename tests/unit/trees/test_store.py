"""Trees are kept by content, complete or not at all, and unused ones are removed."""

import os
import stat
import time
from pathlib import Path

import pytest

from job_tracker.domain.errors import InvalidField, LimitExceeded, TreeDamaged, UnknownReference
from job_tracker.files.untrusted import Place
from job_tracker.trees.store import Missing, ProjectTrees, TreeStore
from tests.support.trees import FILES, line, manifest_of, put, send, sha256_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "programs"


@pytest.fixture
def trees(root: Path) -> ProjectTrees:
    return TreeStore(root).of("vision")


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_tree_is_complete_when_all_its_contents_are_there(trees: ProjectTrees) -> None:
    tree, text = manifest_of(FILES)
    assert not trees.find(tree).is_known
    status = trees.put(tree, text)
    assert status == trees.put(tree, text), "it may be repeated"
    assert {each.sha256 for each in status.missing} == {sha256_of(content) for content in FILES.values()}
    with pytest.raises(UnknownReference, match="is not complete in project vision"):
        trees.require(tree)
    assert send(trees, tree, list(FILES.values())[:2]).missing == (
        Missing(sha256_of(FILES["run.sh"]), len(FILES["run.sh"]), 0),
    )
    assert send(trees, tree, [FILES["run.sh"]]).is_complete
    trees.require(tree)


def test_nothing_is_known_of_the_trees_of_another_project(root: Path) -> None:
    store = TreeStore(root)
    tree = put(store.of("vision"), FILES)
    assert not store.of("speech").find(tree).is_known
    missing = store.of("speech").put(*manifest_of(FILES)).missing
    assert len(missing) == len(FILES), "the projects do not share contents either"
    assert store.projects() == ["speech", "vision"]


def test_only_this_user_can_read_what_is_kept(root: Path, trees: ProjectTrees) -> None:
    put(trees, FILES)
    for path in (root, *root.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_name_of_a_tree_is_the_hash_of_its_manifest(trees: ProjectTrees) -> None:
    _, text = manifest_of(FILES)
    with pytest.raises(InvalidField, match="not the tree's name"):
        trees.put("a" * 64, text)
    for name in ("", "../../etc/passwd", "A" * 64, "a" * 65):
        with pytest.raises(InvalidField, match="must be 64"):
            trees.find(name)


def test_an_unpacked_tree_has_the_files_and_their_modes(trees: ProjectTrees, tmp_path: Path) -> None:
    tree = put(trees, FILES)
    trees.unpack(tree, Place(tmp_path, ("copy",)))
    assert files_in(tmp_path / "copy") == FILES
    assert os.access(tmp_path / "copy" / "run.sh", os.X_OK)
    assert not os.access(tmp_path / "copy" / "train.py", os.X_OK)
    (tmp_path / "copy" / "train.py").write_text("changed")
    trees.unpack(tree, Place(tmp_path, ("another",)))
    assert files_in(tmp_path / "another") == FILES, "a copy that is changed changes nothing else"


def test_a_content_that_a_job_has_changed_is_never_unpacked(trees: ProjectTrees, tmp_path: Path) -> None:
    tree = put(trees, FILES)
    (trees.blobs / sha256_of(FILES["train.py"])).path.write_bytes(b"print('stolen')")
    with pytest.raises(TreeDamaged, match=r"train\.py was changed"):
        trees.unpack(tree, Place(tmp_path, ("copy",)))
    with pytest.raises(UnknownReference, match="not complete"):
        trees.require(tree)
    assert send(trees, tree, [FILES["train.py"]]).is_complete, "the next upload sends it again"


def test_a_content_that_was_cut_is_sent_again(trees: ProjectTrees, tmp_path: Path) -> None:
    tree = put(trees, FILES)
    (trees.blobs / sha256_of(FILES["train.py"])).path.write_bytes(b"")
    with pytest.raises(TreeDamaged, match=r"train\.py was changed"):
        trees.unpack(tree, Place(tmp_path, ("copy",)))
    assert [each.sha256 for each in trees.find(tree).missing] == [sha256_of(FILES["train.py"])]
    assert send(trees, tree, [FILES["train.py"]]).is_complete
    trees.unpack(tree, Place(tmp_path, ("whole",)))


def test_a_content_that_is_a_link_is_never_followed(trees: ProjectTrees, tmp_path: Path) -> None:
    tree = put(trees, {"secret": b"secret"})
    (tmp_path / "elsewhere").write_bytes(b"secret")
    blob = (trees.blobs / sha256_of(b"secret")).path
    blob.unlink()
    blob.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TreeDamaged, match="is gone"):
        trees.unpack(tree, Place(tmp_path, ("copy",)))


def test_a_changed_manifest_is_not_used(trees: ProjectTrees, root: Path) -> None:
    tree = put(trees, FILES)
    (root / "vision" / "trees" / tree).write_bytes(line("evil.py"))
    assert not trees.find(tree).is_known
    assert trees.put(*manifest_of(FILES)).is_complete


def age(root: Path, tree: str, seconds: float) -> None:
    long_ago = time.time() - seconds
    os.utime(root / "vision" / "trees" / tree, (long_ago, long_ago))


def test_unused_trees_are_removed_with_the_contents_that_only_they_have(
    trees: ProjectTrees, root: Path, tmp_path: Path
) -> None:
    old, used, new = put(trees, FILES), put(trees, {**FILES, "x": b"x"}), put(trees, {"train.py": b"2"})
    age(root, old, 1000)
    age(root, used, 1000)
    assert trees.unused_since(time.time() - 500) == sorted((old, used))
    assert trees.remove_unused(time.time() - 500, {used}) == [old]
    assert not trees.find(old).is_known
    trees.unpack(used, Place(tmp_path, ("used",)))
    trees.unpack(new, Place(tmp_path, ("new",)))
    age(root, used, 1000)
    trees.remove_unused(time.time() - 500, ())
    assert set(files_in(root / "vision" / "blobs")) == {sha256_of(b"2")}


def test_a_tree_that_was_just_used_is_not_removed(trees: ProjectTrees, root: Path) -> None:
    tree = put(trees, FILES)
    for use in (trees.find, trees.require, lambda name: trees.touch([name])):
        age(root, tree, 1000)
        use(tree)
        assert trees.remove_unused(time.time() - 500, ()) == []


def test_a_removal_that_was_interrupted_is_completed_by_the_next_one(trees: ProjectTrees, root: Path) -> None:
    put(trees, FILES)
    (root / "vision" / "trees" / manifest_of(FILES)[0]).unlink()  # as after a kill -9 in between
    trees.remove_unused(0, ())
    assert files_in(root / "vision" / "blobs") == {}


def test_an_upload_in_progress_is_not_removed_and_an_abandoned_one_is(
    trees: ProjectTrees, root: Path
) -> None:
    tree, text = manifest_of(FILES)
    trees.put(tree, text)
    send(trees, tree, [FILES["run.sh"]])
    fresh, stale = (root / "vision" / "incoming" / name for name in ("a" * 64, "b" * 64))
    fresh.write_bytes(b"half")
    stale.write_bytes(b"half")
    os.utime(stale, (0, 0))
    assert trees.remove_unused(time.time() - 500, ()) == []
    assert fresh.exists()
    assert not stale.exists()
    assert len(trees.find(tree).missing) == 2, "the content that had arrived is still there"


def test_a_project_without_trees_has_nothing_to_remove(trees: ProjectTrees, root: Path) -> None:
    assert trees.unused_since(time.time()) == []
    assert trees.remove_unused(time.time(), ()) == []
    trees.touch(["a" * 64])
    assert not root.exists()


def test_a_tree_for_which_there_is_no_room_is_refused_before_it_is_sent(root: Path) -> None:
    first, text = line("a", b"x" * 60), line("a", b"x" * 60) + line("b", b"y" * 41)
    stored, wanted = len(first) + 60, len(text) + 41
    trees = TreeStore(root, max_stored_bytes=stored + wanted - 1).of("vision")
    put(trees, {"a": b"x" * 60})
    expected = f"have {stored} bytes, and this tree needs {wanted} more; at most {stored + wanted - 1}"
    with pytest.raises(LimitExceeded, match=expected):
        trees.put(sha256_of(text), text)
    put(trees, {"a": b"x" * 60, "b": b"y" * 40})


def test_trees_that_were_accepted_while_there_was_room_do_not_exceed_it_together(root: Path) -> None:
    trees = TreeStore(root, max_stored_bytes=10_000).of("vision")
    made = [manifest_of({"a": letter * 6000}) for letter in (b"x", b"y")]
    for tree, text in made:
        trees.put(tree, text)
    assert send(trees, made[0][0], [b"x" * 6000]).is_complete
    with pytest.raises(LimitExceeded, match="and this tree needs 6000 more; at most 10000"):
        send(trees, made[1][0], [b"y" * 6000])


def test_manifests_count_too(root: Path) -> None:
    one = len(line("a", b"x"))
    trees = TreeStore(root, max_stored_bytes=3 * one + 1).of("vision")
    for name in "abc":
        put(trees, {name: b"x"})
    with pytest.raises(LimitExceeded, match=f"have {3 * one + 1} bytes, and this tree needs {one} more"):
        put(trees, {"d": b"x"})
    put(trees, {"a": b"x"})


def test_a_tree_larger_than_the_disk_is_refused(root: Path) -> None:
    store = TreeStore(root, max_stored_bytes=1 << 62)
    trees = TreeStore(root, type(store.limits)(max_bytes=1 << 60), max_stored_bytes=1 << 62).of("vision")
    huge = b"".join(line(f"{n:03}", size=1 << 46, sha256=f"{n:064x}") for n in range(100))
    with pytest.raises(LimitExceeded, match="the service's disk has"):
        trees.put(sha256_of(huge), huge)


def test_lower_limits_do_not_harm_trees_that_were_accepted(root: Path, tmp_path: Path) -> None:
    tree = put(TreeStore(root).of("vision"), FILES)
    strict = TreeStore(root, type(TreeStore(root).limits)(max_bytes=1, max_files=1)).of("vision")
    strict.remove_unused(0, ())
    strict.require(tree)
    strict.unpack(tree, Place(tmp_path, ("copy",)))


def test_a_manifest_cannot_claim_that_a_large_content_is_small(trees: ProjectTrees, tmp_path: Path) -> None:
    large = b"x" * 1000
    liar = line("a", sha256=sha256_of(large), size=1) + line("b", sha256=sha256_of(large), size=1)
    tree = sha256_of(liar)
    trees.put(tree, liar)
    put(trees, {"large": large})
    with pytest.raises(InvalidField, match="does not have 1 bytes"):
        trees.put(tree, liar)
    with pytest.raises(UnknownReference, match="is not complete"):
        trees.require(tree)
    with pytest.raises(TreeDamaged, match="was changed"):
        trees.unpack(tree, Place(tmp_path, ("copy",)))
    assert sum(path.stat().st_size for path in (tmp_path / "copy").iterdir()) <= 2
