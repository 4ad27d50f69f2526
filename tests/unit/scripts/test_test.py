"""scripts/test: both halves of the tests run, and the exit status and the last lines say how they went."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "test"
PYTEST = """#!/bin/sh
# In place of Python: $4 selects the tests.
case "$4" in cluster) code=%d ;; *) code=%d ;; esac
echo "of $4"
[ $code = 0 ] || echo "FAILED tests/of_$code"
echo "=== 7 tests in 1.00s ==="
exit $code
"""


def run(folder: Path, *, cluster: int, others: int) -> subprocess.CompletedProcess[str]:
    for place in ("scripts", ".venv/bin"):
        (folder / place).mkdir(parents=True)
    script = Path(shutil.copy(SCRIPT, folder / "scripts"))
    python = folder / ".venv" / "bin" / "python"
    python.write_text(PYTEST % (cluster, others))
    python.chmod(0o700)
    told = {"PATH": os.environ["PATH"], "TMPDIR": str(folder)}
    return subprocess.run([script], env=told, capture_output=True, text=True, check=False)


def test_all_is_well_when_both_halves_are(tmp_path: Path) -> None:
    ended = run(tmp_path, cluster=0, others=0)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "of not cluster" in ended.stdout
    assert "of cluster" in ended.stdout
    assert "what failed" not in ended.stdout
    assert not list(tmp_path.glob("tmp*"))


@pytest.mark.parametrize(("cluster", "others"), [(1, 0), (0, 1), (2, 1)])
def test_what_failed_in_either_half_is_told_at_the_end(tmp_path: Path, cluster: int, others: int) -> None:
    ended = run(tmp_path, cluster=cluster, others=others)
    assert ended.returncode == (cluster or others)
    failed = [f"FAILED tests/of_{code}" for code in (others, cluster) if code]
    last = ended.stdout.partition("tests: what failed\n")[2].splitlines()
    assert [line for line in last if line.startswith("FAILED")] == failed
