"""scripts/test: every part of the tests runs, and the exit status and the last lines say how they went."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "test"
PARTS = ("not cluster and not engine", "cluster", "engine")
PYTEST = """#!/bin/sh
# In place of Python: $4 selects the tests.
case "$4" in cluster) code=%d ;; engine) code=%d ;; *) code=%d ;; esac
echo "of $4"
[ $code = 0 ] || echo "FAILED tests/of_$code"
echo "=== 7 tests in 1.00s ==="
exit $code
"""


def run(
    folder: Path, *, of_a_cluster: int, of_an_engine: int, others: int
) -> subprocess.CompletedProcess[str]:
    for place in ("scripts", ".venv/bin"):
        (folder / place).mkdir(parents=True)
    script = Path(shutil.copy(SCRIPT, folder / "scripts"))
    python = folder / ".venv" / "bin" / "python"
    python.write_text(PYTEST % (of_a_cluster, of_an_engine, others))
    python.chmod(0o700)
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(folder)}
    return subprocess.run([script], env=environment, capture_output=True, text=True, check=False)


def test_all_is_well_when_every_part_is(tmp_path: Path) -> None:
    ended = run(tmp_path, of_a_cluster=0, of_an_engine=0, others=0)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert {f"of {part}" for part in PARTS} <= set(ended.stdout.splitlines())
    assert "what failed" not in ended.stdout
    assert not list(tmp_path.glob("tmp*"))


@pytest.mark.parametrize(
    ("of_a_cluster", "of_an_engine", "others"), [(1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 3, 1)]
)
def test_failures_in_any_part_are_listed_at_the_end(
    tmp_path: Path, of_a_cluster: int, of_an_engine: int, others: int
) -> None:
    ended = run(tmp_path, of_a_cluster=of_a_cluster, of_an_engine=of_an_engine, others=others)
    assert ended.returncode == (of_an_engine or of_a_cluster or others)
    failed = [f"FAILED tests/of_{code}" for code in (others, of_a_cluster, of_an_engine) if code]
    last = ended.stdout.partition("tests: what failed\n")[2].splitlines()
    assert [line for line in last if line.startswith("FAILED")] == failed
