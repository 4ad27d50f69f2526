"""Manifests are parsed as untrusted input, and each has only one valid form."""

import pytest

from job_tracker.domain.errors import InvalidField
from job_tracker.trees.manifest import File, TreeLimits, is_tree, parsed
from tests.support.trees import FILES, line, manifest_of, sha256_of

LIMITS = TreeLimits()


def refusal(text: bytes, limits: TreeLimits = LIMITS) -> str:
    with pytest.raises(InvalidField) as caught:
        parsed(text, limits)
    assert caught.value.field == "manifest"
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_a_manifest_has_path_mode_size_and_hash_of_each_file() -> None:
    tree, text = manifest_of(FILES)
    manifest = parsed(text, LIMITS)
    assert manifest.tree == tree == sha256_of(text)
    assert is_tree(tree)
    assert manifest.files[0] == File("data/words.txt", False, 14, sha256_of(b"one two three\n"))
    assert [(file.path, file.is_executable) for file in manifest.files[1:]] == [
        ("run.sh", True),
        ("train.py", False),
    ]


def test_files_with_spaces_and_other_scripts_are_allowed() -> None:
    _, text = manifest_of({"my notes/größe 1.txt": b"", "データ.csv": b"", "a": b"", "a.b": b"", ".env": b""})
    assert len(parsed(text, LIMITS).files) == 5


@pytest.mark.parametrize(
    "path",
    [
        *("../train.py", "a/../b", "..", ".", "./a", "a/./b", "/etc/passwd", "//a", "a//b", "a/"),
        *("a\0b", "a\rb", "a\x1b[31mb", "a\x7fb", "a\u202eb", "a\u2028b", "a\u200bb"),
        *("x" * 256, "/".join("x" * 200 for _ in range(6)), "/".join("x" * 33)),
    ],
)
def test_a_path_that_leads_elsewhere_or_hides_something_is_refused(path: str) -> None:
    assert "is not allowed" in refusal(line(path))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        line("a")[:-1],
        line("a") + b"\n",
        line("a").replace(b"644", b"777"),
        line("a").replace(b"644", b"120000"),  # git's mode of a link
        line("a", size=7).replace(b" 7 ", b" 07 "),
        line("a", size=7).replace(b" 7 ", b" -7 "),
        line("a", sha256="A" * 64),
        line("a", sha256="a" * 63),
        line("a").replace(b" a\n", b" \xff\n"),
        line("a").replace(b" ", b"  ", 1),
        line("a").replace(b"\n", b"\r\n"),
        line("").replace(b" \n", b"\n"),
    ],
)
def test_there_is_one_text_only(text: bytes) -> None:
    refusal(text)


def test_files_are_ordered_by_the_bytes_of_their_paths_and_listed_once() -> None:
    assert "'a' follows 'b'" in refusal(line("b") + line("a"))
    assert "'a' follows 'a'" in refusal(line("a") + line("a"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Makefile", "makefile"),
        ("Data/a.txt", "data/b.txt"),
        ("Data", "data/b.txt"),
        ("cafe\u0301", "café"),
        ("STRASSE", "straße"),
    ],
)
def test_names_that_are_one_on_some_machines_are_refused(one: str, other: str) -> None:
    paths = sorted((one, other), key=str.encode)
    assert "differ only in case" in refusal(b"".join(line(path) for path in paths))


def test_names_that_look_the_same_are_written_apart() -> None:
    assert r"'cafe\u0301' and 'caf\xe9' differ" in refusal(line("cafe\u0301") + line("caf\u00e9"))


def test_a_file_is_not_a_folder_too() -> None:
    assert "'a' is a file and a folder" in refusal(line("a") + line("a.b") + line("a/b"))


def test_too_many_files_and_bytes_are_refused_and_the_largest_are_named() -> None:
    few = TreeLimits(max_files=2, max_bytes=100)
    assert "has 3 files; at most 2 are allowed (programs.max_files)" in refusal(
        line("a") + line("b") + line("c"), few
    )
    message = refusal(
        line("model.bin", size=99, sha256="b" * 64) + line("small", size=2, sha256="c" * 64), few
    )
    assert "has 101 bytes; at most 100 are allowed (programs.max_bytes)" in message
    assert "the largest are 'model.bin' (99 bytes), 'small' (2 bytes)" in message
    assert "bytes; at most" in refusal(b"x" * (few.max_manifest + 1), few)


def test_a_million_files_are_refused_at_once() -> None:
    refusal(b"\n" * 1_000_000)


def test_equal_contents_have_equal_sizes() -> None:
    same = "a" * 64
    assert "differs in size" in refusal(line("a", size=1, sha256=same) + line("b", size=2, sha256=same))
