import os
import signal
import subprocess
from collections.abc import Iterator

import psutil
import pytest

from job_tracker.backends.process import sweeping
from job_tracker.backends.process.proc import descendants_of
from job_tracker.backends.process.sweeping import kill_with_descendants
from tests.support.patience import PATIENCE

HIDES = "env -i setsid sh -c 'echo $$; exec sleep 1000' & wait"
"""A process that hides in another session, without an environment, and prints its pid."""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sh", "-c", HIDES], stdout=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def hidden_below(parent: "subprocess.Popen[bytes]") -> psutil.Process:
    assert parent.stdout is not None
    return psutil.Process(int(parent.stdout.readline()))


def test_descendants_in_other_sessions_are_killed_with_the_process(parent: subprocess.Popen[bytes]) -> None:
    hidden = hidden_below(parent)
    assert hidden.pid in descendants_of(parent.pid)
    pidfd = os.pidfd_open(parent.pid)
    kill_with_descendants(parent.pid, pidfd)
    assert parent.wait() == -signal.SIGKILL
    assert psutil.wait_procs([hidden], PATIENCE)[1] == [], "process 1 inherits it, and may reap it late"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pidfd)


def test_descendants_are_killed_even_if_the_first_look_at_the_machine_takes_long(
    parent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "_ROUND_SECONDS", 0.0)
    hidden = hidden_below(parent)
    kill_with_descendants(parent.pid, os.pidfd_open(parent.pid))
    assert parent.wait() == -signal.SIGKILL
    assert psutil.wait_procs([hidden], PATIENCE)[1] == []


def test_the_process_is_killed_even_if_its_descendants_cannot_be_found(
    parent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(pid: int) -> None:
        raise OSError(24, "Too many open files")

    hidden = hidden_below(parent)
    monkeypatch.setattr(sweeping, "descendants_of", fails)
    with pytest.raises(OSError, match="Too many open files"):
        kill_with_descendants(parent.pid, os.pidfd_open(parent.pid))
    assert parent.wait() == -signal.SIGKILL
    hidden.kill()


def test_a_process_that_has_ended_is_left_alone(parent: subprocess.Popen[bytes]) -> None:
    hidden = hidden_below(parent)
    pidfd = os.pidfd_open(parent.pid)
    parent.kill()
    parent.wait()
    kill_with_descendants(hidden.pid, pidfd)  # as if the pid had been reused
    assert hidden.is_running()
    hidden.kill()
