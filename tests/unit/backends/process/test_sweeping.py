import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest

from job_tracker.backends.process import sweeping
from job_tracker.backends.process.proc import descendants_of
from job_tracker.backends.process.sweeping import kill_with_descendants
from tests.support.patience import PATIENCE

HIDES = "env -i setsid sh -c 'echo $$; exec sleep 1000' & wait"
"""A process that hides in another session, without an environment, and prints its pid."""


@dataclass
class Family:
    """A process and a hidden child of it."""

    parent: subprocess.Popen[bytes]
    hidden: psutil.Process

    @property
    def is_hidden_gone(self) -> bool:
        """Whether the hidden process ends. Process 1 inherits it, and may reap it late."""
        return not psutil.wait_procs([self.hidden], PATIENCE)[1]

    def kill(self) -> None:
        pidfd = os.pidfd_open(self.parent.pid)
        try:
            kill_with_descendants(self.parent.pid, pidfd)
        finally:
            os.close(pidfd)


def start() -> Family:
    parent = subprocess.Popen(["sh", "-c", HIDES], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    return Family(parent, psutil.Process(int(parent.stdout.readline())))


def end(family: Family) -> None:
    if family.hidden.is_running():
        family.hidden.kill()
    family.parent.kill()
    family.parent.communicate()


@pytest.fixture
def family() -> Iterator[Family]:
    made = start()
    yield made
    end(made)


def test_descendants_in_other_sessions_are_killed_with_the_process(family: Family) -> None:
    assert family.hidden.pid in descendants_of(family.parent.pid)
    family.kill()
    assert family.parent.wait() == -signal.SIGKILL
    assert family.is_hidden_gone


def test_descendants_are_killed_even_if_the_first_look_at_the_machine_takes_long(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "_ROUND_SECONDS", 0.0)
    family.kill()
    assert family.parent.wait() == -signal.SIGKILL
    assert family.is_hidden_gone


def test_descendants_are_killed_even_if_a_look_at_the_machine_fails(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def fails_once(pid: int) -> object:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise OSError(24, "Too many open files")
        return descendants_of(pid)

    monkeypatch.setattr(sweeping, "descendants_of", fails_once)
    monkeypatch.setattr(sweeping, "_ROUND_SECONDS", PATIENCE)
    family.kill()
    assert family.parent.wait() == -signal.SIGKILL
    assert family.is_hidden_gone


def test_the_process_is_killed_even_if_no_look_at_the_machine_succeeds(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(pid: int) -> object:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(sweeping, "descendants_of", fails)
    monkeypatch.setattr(sweeping, "_ROUND_SECONDS", 0.0)
    with pytest.raises(OSError, match="Too many open files"):
        family.kill()
    assert family.parent.wait() == -signal.SIGKILL


def test_nothing_is_killed_below_a_pid_that_may_have_been_reused(family: Family) -> None:
    other = start()
    try:
        family.parent.kill()
        os.waitid(os.P_PID, family.parent.pid, os.WEXITED | os.WNOWAIT)  # a zombie can still be signalled
        pidfd = os.pidfd_open(family.parent.pid)
        kill_with_descendants(other.parent.pid, pidfd)
        os.close(pidfd)
        assert other.hidden.status() == psutil.STATUS_SLEEPING
        assert other.parent.poll() is None
    finally:
        end(other)
