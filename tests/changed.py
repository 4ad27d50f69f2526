"""The tests that a change can break, nearest first.

    python -m tests.changed [BASE]            test files, by their distance from the change
    python -m tests.changed --tests [BASE]    the tests that the change adds or edits

BASE is a commit. By default, it is the commit where this branch left main. On main, it is HEAD if there is
uncommitted work, or the previous commit. The change includes uncommitted work.

The distance of a test is the length of the shortest chain of imports from it to a changed file. The place of
a file also counts: the tests of a file have its path (tests/unit/test_layout.py), every test in the folder
of a conftest.py uses it, and a file that is not Python belongs to the modules of its folder.
"""

import argparse
import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNIT = ROOT / "tests" / "unit"
IMPORTED_FROM = (ROOT, ROOT / "trainer_images")
SOURCES = ("training_service", "job_tracker", "trainer_images", "benchmarks", "tests")
TESTED_FROM = (ROOT / "training_service", ROOT / "job_tracker", ROOT)
"""Folders whose files have their tests at the same relative path in tests/unit."""
TOO_LONG = ("e2e", "crash", "chaos")
"""Folders of tests that run only in the gate, unless they changed themselves."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="changed", description=__doc__.partition("\n")[0])
    parser.add_argument("--tests", action="store_true", help="single tests that are new or changed")
    parser.add_argument("base", nargs="?", metavar="BASE", help="a commit")
    options = parser.parse_args()
    try:
        since = options.base or base()
    except LookupError as error:
        print(error, file=sys.stderr)
        return
    changed = changed_files(since)
    if options.tests:
        print(*changed_tests(changed, since), sep="\n")
        return
    near = nearest_first(changed)
    wanted = [path for path, distance in near.items() if distance == 0 or _folder(path) not in TOO_LONG]
    describe(changed, near, wanted, since)
    print(*(path.relative_to(ROOT) for path in wanted), sep="\n")


def base() -> str:
    """Return the commit where the change begins. Raises LookupError if the history does not contain it."""
    for start in ("origin/main", "main", "HEAD^"):
        try:
            found = git("merge-base", "HEAD", start).strip()
        except subprocess.CalledProcessError:
            continue
        if found != git("rev-parse", "HEAD").strip():
            return found
        if git("status", "--porcelain").strip():  # only uncommitted work is new
            return "HEAD"
    raise LookupError("changed: the history has no earlier commit to compare with")


def changed_files(since: str) -> set[Path]:
    """Return the files that differ from that commit, with new files and without deleted files."""
    names = git("diff", "--name-only", since) + git("ls-files", "--others", "--exclude-standard")
    return {ROOT / name for name in names.splitlines() if (ROOT / name).is_file()}


def nearest_first(changed: set[Path]) -> dict[Path, int]:
    """Return the distance of each test file that uses a changed file, fast ones first among equals."""
    users = users_of_files()
    reached = changed | {path for file in changed for path in neighbours(file)}
    distances = dict.fromkeys(reached, 0) | dict.fromkeys(reached - changed, 1)
    while reached:
        further = {(user, distances[path] + 1) for path in reached for user in users[path]}
        reached = {user for user, _ in further if user not in distances}
        for user, distance in sorted(further, key=lambda found: found[1]):
            distances.setdefault(user, distance)
    tests = [path for path in distances if path.name.startswith("test_")]
    return {path: distances[path] for path in sorted(tests, key=lambda path: (distances[path], _place(path)))}


def neighbours(path: Path) -> Iterator[Path]:
    """Yield the tests with the path of a file. If it is not Python, also yield the modules of its folder and
    the unit tests of its top folder.
    """
    for root in TESTED_FROM:
        if path.is_relative_to(root):
            own = UNIT / path.relative_to(root).with_suffix("")
            yield from own.rglob("test_*.py")
            for place in (own, *own.parents):
                if place != UNIT and place.is_relative_to(UNIT):
                    yield from UNIT.glob(f"{place.parent.relative_to(UNIT)}/test_{place.name}.py")
    if path.suffix != ".py" and path.parent != ROOT:
        folder = next((place for place in path.parents if any(place.glob("*.py"))), ROOT)
        yield from folder.glob("*.py")
        yield from (UNIT / path.relative_to(ROOT).parts[0]).rglob("test_*.py")


@cache
def users_of_files() -> Mapping[Path, set[Path]]:
    """Return the files that import each file, or name its module in a string, such as to start a program."""
    users = defaultdict[Path, set[Path]](set)
    for path in (path for source in SOURCES for path in (ROOT / source).rglob("*.py")):
        for name in _names(path):
            for used in _files(name):
                users[used].add(path)
        if path.name == "conftest.py":
            users[path] |= set(path.parent.rglob("test_*.py"))
    return users


def changed_tests(changed: set[Path], since: str) -> Iterator[str]:
    """Yield the node ids of tests whose code is not in that commit's version of their file, quick first."""
    tests = (path for path in changed if path.name.startswith("test_") and path.suffix == ".py")
    for path in sorted(tests, key=_place):
        name = path.relative_to(ROOT).as_posix()
        try:
            before = _tests(git("show", f"{since}:{name}"))
        except subprocess.CalledProcessError:
            before = {}
        for test, code in _tests(path.read_text()).items():
            if before.get(test) != code:
                yield f"{name}::{test}"


def describe(changed: set[Path], near: Mapping[Path, int], wanted: list[Path], since: str) -> None:
    """Print how many test files are run, and what is left to the gate."""

    def say(text: str) -> None:
        print(f"changed: {text}", file=sys.stderr)

    say(f"{len(changed)} files since {git('describe', '--always', since).strip()}")
    for distance in sorted({near[path] for path in wanted}):
        say(f"  {sum(near[path] == distance for path in wanted)} test files at distance {distance}")
    left = [path for path in near if path not in wanted]
    if left:
        say(
            f"left to the gate: {len(left)} files of {', '.join(TOO_LONG)}, and tests of clusters and engines"
        )
    if without := [
        path.name for path in changed if path.parent == ROOT and path.suffix not in (".md", ".py")
    ]:
        say(f"left to the gate: all tests that use {', '.join(sorted(without))}")


def git(*arguments: str) -> str:
    """Run git and return its output. Raises CalledProcessError."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _names(path: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports, and the dotted names in its strings."""
    try:
        tree = ast.parse(path.read_text())
    except SyntaxError:  # pytest shows the error
        return
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.Constant(value=str(text)) if text.replace(".", "").isidentifier():
                yield text


def _files(name: str) -> Iterator[Path]:
    """Yield the file of a module, if it is one of ours."""
    for root in IMPORTED_FROM:
        path = root / name.replace(".", "/")
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file.is_file():
                yield file


def _tests(source: str) -> dict[str, str]:
    """Return the code of each test of a file, without comments and line breaks."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node for node in ast.parse(source).body if isinstance(node, functions))
    return {node.name: ast.dump(node) for node in found if node.name.startswith("test_")}


def _folder(path: Path) -> str:
    return path.relative_to(ROOT / "tests").parts[0]


def _place(path: Path) -> tuple[int, bool, Path]:
    """Return the sort key: unit tests first, with the trainers' tests at their end (PyTorch is slow)."""
    order = ("unit", "contract", "integration", "security", *TOO_LONG)
    return order.index(_folder(path)), "trainer_images" in path.parts, path


if __name__ == "__main__":
    main()
