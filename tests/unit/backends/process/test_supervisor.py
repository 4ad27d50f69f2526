"""The supervisor of a rank, as the process backend starts it."""

import fcntl
import json
import os
import sys
import time
from pathlib import Path

import pytest

from job_tracker.backends.process import supervisor
from tests.support.patience import PATIENCE

_PATIENT = f"""
import sys
from importlib.util import module_from_spec, spec_from_file_location

spec = spec_from_file_location("supervisor", sys.argv[1])
supervisor = module_from_spec(spec)
spec.loader.exec_module(supervisor)
supervisor._LOCK_SECONDS = {PATIENCE}
supervisor.main(sys.argv[2])
"""
"""The supervisor, which waits longer for its lock: this process may be paused while it holds the lock."""


def test_a_rank_starts_although_a_slow_check_holds_its_lock(tmp_path: Path) -> None:
    rank = tmp_path / "0"
    (rank / "work").mkdir(parents=True)
    (rank / "command").write_bytes(b"\0".join([b"", b"1000000", b"1", b"true", b"PATH=/usr/bin:/bin", b""]))
    argv = [sys.executable, "-I", "-S", "-c", _PATIENT, supervisor.__file__, str(rank)]
    ready, ready_in = os.pipe()
    with (rank / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # like RankFolder.is_supervised
        pid = os.posix_spawn(argv[0], argv, {}, file_actions=[(os.POSIX_SPAWN_DUP2, ready_in, 3)])
        os.close(ready_in)
        time.sleep(0.5)  # longer than such a check takes on a machine that is not busy
        assert os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    _, status = os.waitpid(pid, 0)
    os.close(ready)
    assert status == 0
    assert json.loads((rank / "exit.json").read_text())["code"] == 0


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("0/exit.json", "it has ended already (exit.json)"),
        ("stop.json", "its group is being stopped (stop.json)"),
    ],
)
def test_a_supervisor_says_why_it_does_not_start_its_rank(tmp_path: Path, record: str, reason: str) -> None:
    rank = tmp_path / "0"
    rank.mkdir()
    (tmp_path / record).write_text("{}")
    said = tmp_path / "said"
    ready, ready_in = os.pipe()
    argv = [sys.executable, "-I", "-S", supervisor.__file__, str(rank)]
    actions = [
        (os.POSIX_SPAWN_DUP2, ready_in, 3),
        (os.POSIX_SPAWN_OPEN, 2, str(said), os.O_WRONLY | os.O_CREAT, 0o600),
    ]
    pid = os.posix_spawn(argv[0], argv, {}, file_actions=actions)
    for descriptor in (ready_in, ready):
        os.close(descriptor)
    assert os.waitpid(pid, 0)[1] == 0
    assert said.read_text() == f"0 is not started: {reason}\n"
    assert not (rank / "process.json").exists()
