"""scripts/test: every part of the tests runs, and the exit status and the last lines say how they went."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "test"
PARTS = ("cluster", "engine", "kills", "others")
PYTEST = """#!/bin/sh
# In place of Python: the arguments select the tests.
case "$*" in
*" -m cluster"*) part=cluster code=%d ;;
*" -m engine"*) part=engine code=%d ;;
*" tests/crash"*) part=kills code=%d ;;
*" --ignore=tests/crash"*) part=others code=%d ;;
esac
echo "of $part"
[ $code = 0 ] || echo "FAILED tests/of_$code"
echo "=== 7 tests in 1.00s ==="
exit $code
"""


def run(folder: Path, *codes: int) -> subprocess.CompletedProcess[str]:
    """Run the script. The parts of the tests end with these exit codes, in the order of PARTS."""
    for place in ("scripts", ".venv/bin"):
        (folder / place).mkdir(parents=True)
    script = Path(shutil.copy(SCRIPT, folder / "scripts"))
    python = folder / ".venv" / "bin" / "python"
    python.write_text(PYTEST % codes)
    python.chmod(0o700)
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(folder)}
    return subprocess.run([script], env=environment, capture_output=True, text=True, check=False)


def test_all_is_well_when_every_part_is(tmp_path: Path) -> None:
    ended = run(tmp_path, 0, 0, 0, 0)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert {f"of {part}" for part in PARTS} <= set(ended.stdout.splitlines())
    assert "what failed" not in ended.stdout
    assert not list(tmp_path.glob("tmp*"))


@pytest.mark.parametrize(
    ("cluster", "engine", "kills", "others"),
    [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (2, 3, 4, 1)],
)
def test_failures_in_any_part_are_listed_at_the_end(
    tmp_path: Path, cluster: int, engine: int, kills: int, others: int
) -> None:
    ended = run(tmp_path, cluster, engine, kills, others)
    assert ended.returncode == (kills or engine or cluster or others)
    failed = [f"FAILED tests/of_{code}" for code in (others, cluster, engine, kills) if code]
    last = ended.stdout.partition("tests: what failed\n")[2].splitlines()
    assert [line for line in last if line.startswith("FAILED")] == failed
