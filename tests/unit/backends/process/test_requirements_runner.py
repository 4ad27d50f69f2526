"""Equal requirements share an environment, unless they may name other files."""

import pytest

from job_tracker.backends.process.requirements_runner import is_plain, name_of

TREE, OTHER = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    "line",
    [
        "numpy",
        "numpy==2.1",
        "a-b[x, y]>=1,<2 ; python_version < '3.12'",
        "# ./x",
        "torch  # of ours",
        "",
        "a~=1.0",
    ],
)
def test_plain_requirements_are_the_same_in_every_tree(line: str) -> None:
    content = f"six\n{line}\n".encode()
    assert is_plain(content)
    assert name_of(content, TREE) == name_of(content, OTHER)


@pytest.mark.parametrize(
    "line",
    [
        "-r other.txt",
        "-c limits.txt",
        "-e .",
        ".",
        "./pkg",
        "pkg/",
        "a @ file:x",
        "--find-links=wheels",
        "a\\",
        "x.whl/",
    ],
)
def test_requirements_that_may_name_files_belong_to_their_tree(line: str) -> None:
    content = f"six\n{line}\n".encode()
    assert not is_plain(content)
    assert name_of(content, TREE) != name_of(content, OTHER)
