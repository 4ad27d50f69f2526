"""trainctl submit: requests, output and refusals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.trainctl import DIAGNOSIS, HOSTILE, SUBMIT
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


def test_submit_prints_only_the_id_in_a_pipe(training: ServerInThread, trainctl: Trainctl) -> None:
    result = trainctl(*SUBMIT)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "1\n", "")


def test_submit_prints_json(trainctl: Trainctl) -> None:
    assert json.loads(trainctl(*SUBMIT, "--json").stdout) == {"job_id": 1}


def test_submit_on_a_terminal_prints_how_to_follow_the_job(trainctl: Trainctl) -> None:
    assert trainctl.on_terminal(*SUBMIT).stdout == "Submitted job 1. To follow it: trainctl watch 1\n"


def test_submit_sends_what_follows_nan(training: ServerInThread, trainctl: Trainctl) -> None:
    metrics = ("--nonfinite-metric", "val/*", "--nonfinite-metric", "loss")
    assert trainctl(*SUBMIT, "--on-nonfinite", "fail", *metrics).exit_code == 0
    [request] = training.service.requests
    assert request.number_policy == pb.NumberPolicy(on_nonfinite="fail", metrics=["val/*", "loss"])


def test_submit_sends_its_options(training: ServerInThread, trainctl: Trainctl) -> None:
    given = (
        "--name",
        "nightly",
        "--instances",
        "3",
        "--model",
        "m",
        "--request-key",
        "k",
        "--flavor",
        "a100",
    )
    assert trainctl(*SUBMIT, *given, "-p", "NOTE=a=b=c", "-p", "EMPTY=").exit_code == 0
    assert training.service.requests == [
        pb.TrainRequest(
            metadata=pb.TrainingJobMetadata(
                algorithm="bert",
                dataset_id="questions",
                train_data_version_hash="3f2a",
                name="nightly",
                output_model_name="m",
                parameters={"NOTE": "a=b=c", "EMPTY": "", "PARALLEL_INSTANCES": "3"},
            ),
            request_key="k",
            flavor="a100",
        )
    ]


def test_submit_needs_no_dataset(training: ServerInThread, trainctl: Trainctl) -> None:
    assert trainctl("submit", "probe", "-p", "LR=0.1").stdout == "1\n"
    [request] = training.service.requests
    assert request.metadata == pb.TrainingJobMetadata(algorithm="probe", parameters={"LR": "0.1"})


def test_submit_sends_pod_options(training: ServerInThread, trainctl: Trainctl) -> None:
    given = ("-r", "cpu=2", "-r", "gpu=1", "--nproc-per-node", "2", "--node-selector", "zone=a")
    more = ("--priority-class", "high", "--label", "team=nlp", "--annotation", "note=x=y")
    places = ("--near", "zone", "--apart", "machine", "--strict-placement")
    taints = ("--toleration", "gpu=true:NoSchedule", "--toleration", "spot", "--toleration", "old:NoExecute")
    assert trainctl(*SUBMIT, *given, *more, *taints, *places).exit_code == 0
    [request] = training.service.requests
    assert request.pod_options == pb.PodOptions(
        resources={"cpu": "2", "nvidia.com/gpu": "1"},
        nproc_per_node=2,
        node_selector={"zone": "a"},
        priority_class="high",
        labels={"team": "nlp"},
        annotations={"note": "x=y"},
        tolerations=[
            pb.Toleration(key="gpu", operator="Equal", value="true", effect="NoSchedule"),
            pb.Toleration(key="spot", operator="Exists"),
            pb.Toleration(key="old", operator="Exists", effect="NoExecute"),
        ],
        placement=pb.Placement(near="zone", apart="machine", strict=True),
    )


def test_strict_placement_needs_a_place(training: ServerInThread, trainctl: Trainctl) -> None:
    result = trainctl(*SUBMIT, "--strict-placement")
    assert result.exit_code == 2
    assert "it needs --near or --apart" in result.output
    assert not training.service.requests


def test_submit_sends_no_pod_options_by_default(training: ServerInThread, trainctl: Trainctl) -> None:
    assert trainctl(*SUBMIT).exit_code == 0
    assert not training.service.requests[0].HasField("pod_options")


def test_submit_sends_the_retry_policy_and_deadlines(training: ServerInThread, trainctl: Trainctl) -> None:
    attempts = ("--max-attempts", "5", "--retry-on", "crashed", "--retry-on", "killed", "--backoff", "1.5m")
    deadlines = ("--queue-deadline", "1d", "--start-deadline", "90", "--run-deadline", "0")
    assert trainctl(*SUBMIT, *attempts, "--max-backoff", "2h", *deadlines).exit_code == 0
    [request] = training.service.requests
    assert request.retry_policy == pb.RetryPolicy(
        max_attempts=5,
        retry_on=["crashed", "killed"],
        backoff=Duration(seconds=90),
        max_backoff=Duration(seconds=7200),
    )
    assert request.deadlines == pb.Deadlines(
        queue=Duration(seconds=86400), start=Duration(seconds=90), run=Duration()
    )
    assert trainctl(*SUBMIT).exit_code == 0
    assert not training.service.requests[1].HasField("retry_policy")
    assert not training.service.requests[1].HasField("deadlines")


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        (("--backoff", "soon"), "'soon' is not a duration"),
        (("--run-deadline", "-1"), "'-1' is not a duration"),
        (("--run-deadline", "9999d"), "at most 3650d"),
        (("--max-attempts", "0"), "--max-attempts"),
        (("-r", "cpu"), "'cpu' is not KEY=VALUE"),
        (("--label", "a=1", "--label", "a=2"), "'a' is given twice"),
        (("-p", "EPOCHS"), "'EPOCHS' is not KEY=VALUE"),
        (("-p", "=5"), "'=5' is not KEY=VALUE"),
        (("-p", "A=1", "-p", "A=2"), "'A' is given twice"),
        (("--instances", "0"), "--instances"),
    ],
)
def test_submit_refuses_an_invalid_option(
    training: ServerInThread, trainctl: Trainctl, parameters: tuple[str, ...], complaint: str
) -> None:
    result = trainctl(*SUBMIT, *parameters)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert training.service.requests == []


def test_submit_and_follow_prints_the_id_then_the_outcome(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.service.outcomes[1] = pb.GetTrainingStatusResponse(status=pb.failure, diagnosis=DIAGNOSIS)
    result = trainctl(*SUBMIT, "--follow")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "1",
        "job 1: failure",
        "  what happened: It ran out of memory.",
        "  detail: Killed",
        "  what to do: Use less.",
    ]


def test_submit_and_follow_on_a_terminal_explains_a_failure(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.service.outcomes[1] = pb.GetTrainingStatusResponse(status=pb.failure, diagnosis=DIAGNOSIS)
    result = trainctl.on_terminal(*SUBMIT, "-f")
    assert result.exit_code == 1
    assert "Submitted job 1." in result.stdout
    assert all(text in result.stdout for text in ("failure", "It ran out of memory.", "Use less."))


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 2),
        (grpc.StatusCode.NOT_FOUND, 3),
        (grpc.StatusCode.ALREADY_EXISTS, 7),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 7),
        (grpc.StatusCode.FAILED_PRECONDITION, 7),
        (grpc.StatusCode.INTERNAL, 8),
    ],
)
def test_a_refusal_is_one_line_and_an_exit_code(
    training: ServerInThread, trainctl: Trainctl, code: grpc.StatusCode, exit_code: int
) -> None:
    training.fail(pb.TrainRequest, code, f"LR: {HOSTILE}")
    result = trainctl(*SUBMIT)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert result.stderr.startswith("trainctl: ")
    assert r"LR: [red]evil\x1b[2J\nname" in result.stderr
    assert result.stderr.count("\n") == 1


def test_submit_without_an_answer_prints_how_to_repeat_it(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.fail(pb.TrainRequest, grpc.StatusCode.DEADLINE_EXCEEDED, after_effect=True)
    result = trainctl(*SUBMIT)
    assert result.exit_code == 4
    key = training.service.requests[0].request_key
    assert f"add --request-key {key}" in result.stderr
    assert trainctl(*SUBMIT, "--request-key", key).stdout == "1\n"
