"""trainctl wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


def test_wait_times_out(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, status=pb.running)
    result = trainctl("wait", "1", "--timeout", "0.1")
    assert (result.exit_code, result.stdout) == (6, "")
    assert result.stderr == "trainctl: job 1 has not ended within 0.1 s\n"
