"""The demos wait for what they start, as long as it runs."""

import subprocess
from pathlib import Path

from tests.support.patience import PATIENCE

SOURCE = Path(__file__).parents[3] / "scripts" / "for-demos.sh"


PAUSES_AFTER_EACH_LOOK = 'sleep() { touch looked; command sleep "$@"; }'
ENDS_AFTER_THE_FIRST_LOOK = """
        kill() { touch looked; while builtin kill -0 "$2" 2>/dev/null; do :; done; builtin kill "$@"; }
"""


def found_in(
    folder: Path, program: str, looks: str = PAUSES_AFTER_EACH_LOOK
) -> subprocess.CompletedProcess[str]:
    """Start a program (sh) with a log, and wait for its address. It can wait for the file `looked`, which
    `looks`, a bash function, makes.
    """
    script = f"""
        set -euo pipefail
        source {SOURCE}
        {looks}
        : >log
        ({program}) >>log &
        address=$(found_in log $! 'serving at \\([^,]*\\),')
        echo "found $address"
    """
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_the_address_of_a_program_that_is_slow_is_found(tmp_path: Path) -> None:
    slow = "until [ -e looked ]; do :; done; echo it is serving at 127.0.0.1:7, soon"
    done = found_in(tmp_path, slow)
    assert (done.returncode, done.stdout) == (0, "found 127.0.0.1:7\n"), done.stderr


def test_the_address_of_a_program_that_ends_just_after_a_look_at_its_log_is_found(tmp_path: Path) -> None:
    brief = "until [ -e looked ]; do :; done; echo it is serving at 127.0.0.1:7, soon"
    done = found_in(tmp_path, brief, ENDS_AFTER_THE_FIRST_LOOK)
    assert (done.returncode, done.stdout) == (0, "found 127.0.0.1:7\n"), done.stderr


def test_the_log_of_a_program_that_ends_early_is_shown(tmp_path: Path) -> None:
    done = found_in(tmp_path, "until [ -e looked ]; do :; done; echo no room")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no room\n")
