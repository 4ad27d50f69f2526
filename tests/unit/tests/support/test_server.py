"""A forked service behaves like one that was started."""

from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.server import run, service_forks
from tests.support.trainers.forkserver import ForkServer

__all__ = ["service_forks"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("config", "-s", "scheduling.capacity=3"),
        ("serve", "-s", "scheduling.capacity=many"),
        ("health", "--address", "127.0.0.1:1", "--unknown"),
    ],
)
def test_a_command_prints_and_ends_the_same(
    service_forks: ForkServer, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    def ended() -> CompletedProcess[str]:
        return run(*arguments, HOME=str(tmp_path), TRAINING_SERVICE_JOBS__STOP_GRACE="7")

    started = ended()
    monkeypatch.setattr("tests.support.server.FORKS", service_forks)
    forked = ended()
    # Sets differ in order.
    first, second = (sorted(each.stdout.replace(",", "").splitlines()) for each in (forked, started))
    assert first == second
    assert (forked.returncode, forked.stderr) == (started.returncode, started.stderr)
