"""trainctl run: what it prints about the job that it has started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.trainctl import DIAGNOSIS
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl

RUN = ("run", "--no-start", "--tree", "0f" * 32, "train.py")
TIMES: dict[str, Any] = {"started_at": Timestamp(seconds=60), "finished_at": Timestamp(seconds=185)}


def test_a_run_that_succeeds_ends_with_its_time_and_its_model(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    for job in (1, 2):
        training.service.outcomes[job] = pb.GetTrainingStatusResponse(
            status=pb.succeed, model_uri="file:///models/1", has_model=True, **TIMES
        )
        training.service.printed[job, 0] = ["hello\n"]
    result = trainctl(*RUN)
    assert (result.exit_code, result.stdout) == (0, "hello\n")
    assert result.stderr.splitlines()[-1] == "trainctl: job 1: succeed, ran 2m 05s, model file:///models/1"
    quiet = trainctl("-q", *RUN)
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "hello\n", "")


def test_a_run_that_fails_says_why_even_if_it_is_quiet(training: ServerInThread, trainctl: Trainctl) -> None:
    training.service.outcomes[1] = pb.GetTrainingStatusResponse(
        status=pb.failure, diagnosis=DIAGNOSIS, **TIMES
    )
    result = trainctl("-q", *RUN)
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "trainctl: job 1: failure, ran 2m 05s\ntrainctl:   what happened: It ran out of memory.\n"
    )
