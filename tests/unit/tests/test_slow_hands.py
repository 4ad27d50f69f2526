"""With slow hands, what a test does to a program comes late."""

import subprocess
import sys
from pathlib import Path

from tests.changed import ROOT

TEST = """
import subprocess, time
def test_a_kill():
    with subprocess.Popen(["sleep", "600"]) as process:
        began = time.monotonic()
        process.kill()
        assert time.monotonic() - began >= 0.5
        assert process.wait() == -9
"""


def test_a_kill_comes_late(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.slow_hands",
        "-p",
        "no:cacheprovider",
        "--late",
        "0.5",
    ]
    ended = subprocess.run(
        [*command, "-c", "pyproject.toml", f"--rootdir={tmp_path}", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in ended.stdout, ended.stdout
