"""Commands for several jobs: trainctl cancel and trainctl rm."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import grpc
import pytest

from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


def test_each_outcome_is_reported_and_one_failure_is_the_exit_code(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.set_job(1, status=pb.running)
    training.set_job(3, status=pb.running)
    result = trainctl("cancel", "1", "2", "3", "1")
    assert result.stdout == "job 1: cancelled\njob 3: cancelled\n"
    assert (result.exit_code, result.stderr) == (3, "trainctl: Job 2 doesn't exist\n")


def test_the_jobs_after_a_lost_service_are_not_tried(
    training: ServerInThread, trainctl: Trainctl, fast_failing: None
) -> None:
    training.set_job(1, status=pb.running)
    training.fail(pb.CancelTrainingRequest, grpc.StatusCode.DEADLINE_EXCEEDED, times=1)
    assert trainctl("cancel", "1", "1").exit_code == 4
    training.die()
    result = trainctl("cancel", "1", "2", "3")
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.endswith("Not tried: 2, 3\n")


def test_rm_deletes_ended_jobs_and_refuses_others(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, status=pb.succeed)
    training.set_job(2, status=pb.running)
    training.set_job(3, status=pb.failure)
    training.set_job(4, status=pb.failure)
    training.set_job(5, status=pb.failure)
    result = trainctl("rm", "1", "2", "3")
    assert result.stdout == "job 1: deleted\njob 3: deleted\n"
    assert (result.exit_code, result.stderr) == (7, "trainctl: job 2 is running\n")
    assert list(training.service.jobs) == [2, 4, 5]
    assert json.loads(trainctl("rm", "4", "--json").stdout) == {"job_id": 4}
    assert trainctl.on_terminal("rm", "5").stdout == "Job 5 is deleted.\n"


@pytest.mark.parametrize("command", ["cancel", "rm"])
def test_without_a_job_nothing_is_done(trainctl: Trainctl, command: str) -> None:
    assert trainctl(command).exit_code == 2


@pytest.mark.parametrize("given", ["6x", "0", "1_0", "٣", "4294967296", "9" * 5000])
def test_what_is_no_id_is_refused_before_any_job_is_touched(
    given: str, training: ServerInThread, trainctl: Trainctl
) -> None:
    training.set_job(5, status=pb.succeed)
    for command in (("rm", "5", given), ("cancel", "5", given), ("status", given)):
        result = trainctl(*command)
        assert result.exit_code == 2
        assert "not a job id" in " ".join(result.stderr.replace("│", " ").split())
    assert trainctl("status", "5").exit_code == 0
