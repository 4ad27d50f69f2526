"""README.md names a test for each attack, and each named test exists."""

import ast
import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
README = (HERE / "README.md").read_text()
DESIGNED = ("C1", "C2", "C3", "H4", "H5", "H6", "H7", "H8", "M9", "M10", "L12")
"""The attacks that were found in the first version."""


def test_every_attack_has_a_test() -> None:
    rows = re.findall(r"^\| ([CHML]\d+)? ?\| .* \| (.*::.*) \|$", README, re.MULTILINE)
    assert {number for number, _ in rows} == {*DESIGNED, ""}
    assert len(rows) == len(re.findall(r"^\| ([CHML]\d+)? ?\|", README, re.MULTILINE)) - 2, (
        "every row but the heads of the tables"
    )


def test_every_named_test_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", README)
    assert len(named) == README.count("::")
    assert [f"{file}::{test}" for file, test in named if test not in functions_of(ROOT / file)] == []


def test_every_file_of_these_tests_is_named() -> None:
    files = {file.name for file in HERE.glob("test_*.py")}
    assert [file for file in sorted(files) if file not in README] == []


@cache
def functions_of(file: Path) -> set[str]:
    defined = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {each.name for each in ast.parse(file.read_text()).body if isinstance(each, defined)}
