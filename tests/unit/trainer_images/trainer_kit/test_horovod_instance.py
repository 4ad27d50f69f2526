"""The processes of one instance of a Horovod group, each with a rank of its own."""

import signal
import subprocess

import pytest

from tests.support.patience import PATIENCE
from tests.support.trainers.launcher import Launcher, end_of


def start(launcher: Launcher, size: int, script: str) -> subprocess.Popen[str]:
    """Start the instance whose first process has rank 4."""
    return launcher.start(
        *("-m", "trainer_kit.horovod_instance", "sh", "-c", script),
        HOROVOD_RANK="4",
        HOROVOD_LOCAL_SIZE=str(size),
    )


def test_each_process_has_its_rank(launcher: Launcher) -> None:
    ended = end_of(start(launcher, 3, "echo $HOROVOD_RANK $HOROVOD_LOCAL_RANK $RANK $LOCAL_RANK"))
    assert (ended.code, ended.stderr) == (0, "")
    assert sorted(ended.stdout.splitlines()) == ["4 0 4 0", "5 1 5 1", "6 2 6 2"]


@pytest.mark.parametrize(("failure", "code"), [("exit 3", 3), ("kill -KILL $$", 137)])
def test_a_failure_ends_the_others_and_is_the_exit_code(launcher: Launcher, failure: str, code: int) -> None:
    instance = start(launcher, 3, f"[ $HOROVOD_LOCAL_RANK = 1 ] || exec sleep 1000; {failure}")
    ended = end_of(instance, PATIENCE)
    assert ended.code == code


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_all_processes(launcher: Launcher, signum: signal.Signals) -> None:
    instance = start(launcher, 2, "echo here; exec sleep 1000")
    assert instance.stdout
    assert [instance.stdout.readline() for _ in range(2)] == ["here\n"] * 2
    instance.send_signal(signum)
    assert end_of(instance, PATIENCE).code == 128 + signum
