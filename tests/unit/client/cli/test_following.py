"""The outcome of a job that is followed to its end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


@pytest.mark.parametrize(("state", "exit_code"), [(pb.succeed, 0), (pb.failure, 1), (pb.cancelled, 5)])
@pytest.mark.parametrize("command", ["watch", "wait"])
def test_the_outcome_of_a_job_is_the_exit_code(
    training: ServerInThread,
    trainctl: Trainctl,
    command: str,
    state: pb.TrainingStatus.ValueType,
    exit_code: int,
) -> None:
    training.set_job(1, status=state)
    word = pb.TrainingStatus.Name(state)
    piped, drawn = trainctl(command, "1"), trainctl.on_terminal(command, "1")
    assert (piped.exit_code, piped.stdout.strip().rstrip(", ")) == (exit_code, f"job 1: {word}")
    assert drawn.exit_code == exit_code
    assert word in drawn.stdout
    assert json.loads(trainctl(command, "1", "--json").stdout)["status"] == word
