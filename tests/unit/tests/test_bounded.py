"""Bounded runs repeat tests round by round, and begin none when time is up."""

import re
import subprocess
import sys
from pathlib import Path

from tests.changed import ROOT

TESTS = """
import pytest
def test_a(): pass
@pytest.mark.parametrize("x", [1, 2])
def test_b(x): assert x == 1
"""


def run(folder: Path, *arguments: str) -> str:
    (folder / "test_it.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.bounded",
        "-p",
        "no:cacheprovider",
        "-v",
        *arguments,
    ]
    ended = subprocess.run(
        [*command, "-c", "pyproject.toml", f"--rootdir={folder}", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout


def test_all_tests_run_round_by_round_and_a_failure_names_its_round(tmp_path: Path) -> None:
    shown = run(tmp_path, "--repeat", "3")
    assert re.findall(r"::(test_a\[.*\]) PASSED", shown) == [f"test_a[round {n}]" for n in (1, 2, 3)]
    assert "3 failed, 6 passed" in shown
    assert re.findall(r"FAILED .*(round \d).*", shown)[-3:] == ["round 1", "round 2", "round 3"]


def test_no_test_begins_when_time_is_up(tmp_path: Path) -> None:
    shown = run(tmp_path, "--seconds", "0")
    assert "3 skipped" in shown
    assert "time is up: left to the gate" in shown


def test_no_round_begins_when_time_is_up_and_it_is_said_how_far_they_came(tmp_path: Path) -> None:
    assert "2 rounds: 0 of 6 tests had time" in run(tmp_path, "--repeat", "2", "--seconds", "0")
