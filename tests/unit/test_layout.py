"""Tests of a file are found by its path, and import shared code from tests/support. All types are checked."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

UNIT = Path(__file__).parent
ROOT = UNIT.parents[1]
INNER = [ROOT / "job_tracker", ROOT / "training_service"]
"""Packages whose folders are directly in tests/unit. Other folders are there by their full path."""
ABOUT_ALL = (Path("test_layout.py"), Path("test_language.py"))


def test_the_tests_of_a_file_are_found_by_its_path() -> None:
    tests = {path.relative_to(UNIT) for path in UNIT.rglob("test_*.py")}.difference(ABOUT_ALL)
    assert tests
    assert sorted(str(test) for test in tests if not mirrors(test)) == []


@pytest.mark.parametrize(
    ("test", "is_one"),
    [
        ("logs/test_archive.py", True),  # job_tracker/logs/archive.py
        ("client/test_sync.py", True),  # training_service/client/sync.py
        ("docs/test_sweeps.py", True),  # docs/sweeps.md
        ("deploy/optional/test_followed_nodes.py", True),  # deploy/optional/followed-nodes
        ("domain/naming/test_anything.py", True),  # job_tracker/domain/naming.py has several
        ("test_frameworks.py", True),  # job_tracker/frameworks as a whole
        ("logs/test_anything.py", False),
        ("kubernetes/test_plan.py", False),
        ("job_tracker/logs/test_archive.py", False),
        ("test_unit.py", False),
    ],
)
def test_a_test_belongs_to_a_file_alone_or_with_others(test: str, is_one: bool) -> None:
    assert mirrors(Path(test)) is is_one


def test_tests_share_code_only_in_support_and_import_it_by_name() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted(UNIT.parent.rglob("*.py"))
        for line, name in imported(path)
        if name.endswith(".*") or is_of_a_test(name)
    ] == []


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("tests.e2e.conftest.Server", True),
        ("tests.e2e.conftest", True),
        ("tests.e2e.test_logs.text", True),
        ("tests.e2e.test_logs", True),
        ("tests.support.server.Server", False),
        ("tests.crash.sweep.test_points", False),
        ("package.conftest", False),
    ],
)
def test_imports_from_tests_are_found(name: str, is_one: bool) -> None:
    assert is_of_a_test(name) is is_one


def mirrors(test: Path) -> bool:
    """Return whether there is a file or folder for the test, or a file for the test's folder."""
    own = test.with_name(test.stem.removeprefix("test_"))
    outer = [] if ROOT / test.parts[0] in INNER else [ROOT]
    return any(exists(root / own) or is_file(root / own.parent) for root in [*INNER, *outer])


def is_file(path: Path) -> bool:
    return exists(path) and not path.is_dir()


def exists(path: Path) -> bool:
    """Return whether a folder or a file has this name, with any suffix, or with hyphens."""
    names = {path.name, path.name.replace("_", "-")}
    return any((path.parent / name).exists() or any(path.parent.glob(f"{name}.*")) for name in names)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the dotted names that a file imports, each with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)


def is_of_a_test(name: str) -> bool:
    """Return whether it is one of our test files or conftest.py, or a name in one."""
    path = (ROOT / name.replace(".", "/")).with_suffix(".py")
    files = [path, path.parent.with_suffix(".py")]
    return any(f.stem == "conftest" or f.stem.startswith("test_") for f in files if f.is_file())


def test_the_types_of_every_package_are_checked() -> None:
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["packages"]
    made = {
        path.parent.name
        for folder in (".", "trainer_images")
        for path in (ROOT / folder).glob("*/__init__.py")
    }
    assert made == set(checked)
