"""trainctl rerun and trainctl clone."""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.trainctl import SUBMIT
from training_service._generated import training_service_pb2 as pb
from training_service.client import submissions

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl

EVERYTHING = pb.TrainRequest(
    metadata=pb.TrainingJobMetadata(
        algorithm="bert",
        dataset_id="questions",
        train_data_version_hash="3f2a",
        name="it's a name",
        output_model_name="model",
        parameters={"LR": "0.1", "NOTE": "two\nlines \\ 'ü' \x1b"},
    ),
    request_key="k",
    retry_policy=pb.RetryPolicy(
        max_attempts=3,
        backoff=Duration(nanos=250_000_000),
        max_backoff=Duration(seconds=90),
        retry_on=["any"],
    ),
    deadlines=pb.Deadlines(queue=Duration(), start=Duration(seconds=60), run=Duration(seconds=86400)),
    pod_options=pb.PodOptions(
        resources={"cpu": "2", "nvidia.com/gpu": "1"},
        nproc_per_node=2,
        node_selector={"zone": "a"},
        tolerations=[
            pb.Toleration(key="gpu", operator="Equal", value="yes", effect="NoSchedule"),
            pb.Toleration(key="spot", operator="Exists"),
        ],
        priority_class="high",
        labels={"team": "ml"},
        annotations={"note": "a b"},
        placement=pb.Placement(near="zone", apart="rack", strict=True),
    ),
    tags=["best", "team=a"],
)

PROGRAM = pb.TrainRequest(
    metadata=pb.TrainingJobMetadata(
        name="train.py", output_model_name="model", parameters={"PARALLEL_INSTANCES": "3"}
    ),
    request_key="k",
    program=pb.Program(
        tree="ab" * 32,
        command=["python", "train.py", "--", "--lr", "0.1", "$HOME", ""],
        framework="pytorch",
        environment={"MODE": "fast", "NOTE": "two\nlines"},
        version="3f2a-dirty",
        requirements="env/requirements.txt",
        python_environment="torch-2",
        image="registry.example.com/team:1",
    ),
    retry_policy=pb.RetryPolicy(max_attempts=3, backoff=Duration(seconds=1)),
    deadlines=pb.Deadlines(queue=Duration(seconds=5), run=Duration(seconds=60)),
    pod_options=pb.PodOptions(nproc_per_node=2, resources={"cpu": "2"}, labels={"team": "ml"}),
    tags=["best"],
)


def test_rerun_repeats_the_request_in_its_project_with_changes(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    trainctl(*SUBMIT, "-p", "LR=0.1", "-p", "EPOCHS=5", "--tag", "best", "--request-key", "k")
    training.set_job(1, project="vision")
    result = trainctl("rerun", "1", "--set", "LR=0.2", "-p", "NEW=a=b", "--name", "again")
    assert (result.exit_code, result.stdout) == (0, "2\n")
    first, second = (training.service.submitted[job] for job in (1, 2))
    assert dict(second.metadata.parameters) == {"LR": "0.2", "EPOCHS": "5", "NEW": "a=b"}
    assert (second.metadata.name, list(second.tags)) == ("again", ["best"])
    assert second.metadata.dataset_id == first.metadata.dataset_id
    assert second.request_key != first.request_key
    assert training.service.projects[-1] == "vision"
    trainctl("rerun", "1", "--project", "speech", "--dataset", "other", "--version", "4b")
    assert training.service.projects[-1] == "speech"
    assert training.service.submitted[3].metadata.dataset_id == "other"


def test_rerun_follows_and_says_how_to_repeat_it(training: ServerInThread, trainctl: Trainctl) -> None:
    training.service.outcomes[2] = pb.GetTrainingStatusResponse(status=pb.failure)
    trainctl(*SUBMIT)
    assert trainctl("rerun", "1", "--follow").exit_code == 1
    training.fail(pb.TrainRequest, grpc.StatusCode.DEADLINE_EXCEEDED, after_effect=True)
    lost = trainctl("rerun", "1", "--request-key", "mine")
    assert lost.exit_code == 4
    assert "add --request-key mine" in lost.stderr
    assert trainctl("rerun", "1", "--request-key", "mine").stdout == "3\n"


def test_rerun_and_clone_change_the_deadlines_that_are_given_and_keep_the_others(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    trainctl(*SUBMIT, "--start-deadline", "1m", "--run-deadline", "1h", "--queue-deadline", "1h")
    others = ("--run-deadline", "0", "--queue-deadline", "2h", "--progress-deadline", "90")
    assert trainctl("rerun", "1", *others).stdout == "2\n"
    assert training.service.submitted[2].deadlines == pb.Deadlines(
        queue=Duration(seconds=7200),
        start=Duration(seconds=60),
        run=Duration(),
        progress=Duration(seconds=90),
    )
    assert "--start-deadline 60s --run-deadline 0" in trainctl("clone", "1", *others).stdout
    trainctl("rerun", "2", "--set", "LR=1")
    assert training.service.submitted[3].deadlines == training.service.submitted[2].deadlines


def test_rerun_of_a_program_keeps_its_files_and_changes_its_command(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.set_job(1)
    training.service.submitted[1] = PROGRAM
    changes = ("-e", "MODE=slow", "-e", "MORE=1", "--set", "PARALLEL_INSTANCES=1")
    assert trainctl("rerun", "1", *changes, "--", "python", "train.py", "--lr", "0.2").stdout == "2\n"
    new = training.service.submitted[2]
    assert new.program == pb.Program(
        tree=PROGRAM.program.tree,
        command=["python", "train.py", "--lr", "0.2"],
        framework="pytorch",
        environment={"MODE": "slow", "NOTE": "two\nlines", "MORE": "1"},
        version="3f2a-dirty",
        requirements="env/requirements.txt",
        python_environment="torch-2",
        image="registry.example.com/team:1",
    )
    assert dict(new.metadata.parameters) == {"PARALLEL_INSTANCES": "1"}


def test_rerun_refuses_changes_of_the_other_kind_of_job(training: ServerInThread, trainctl: Trainctl) -> None:
    for job, request in ((1, PROGRAM), (2, EVERYTHING)):
        training.set_job(job)
        training.service.submitted[job] = request
    refused = trainctl("rerun", "1", "--set", "LR=0.2")
    assert (refused.exit_code, "'LR' is not allowed: the job runs an uploaded program" in refused.stderr) == (
        2,
        True,
    )
    for change in (("-e", "MODE=slow"), ("--", "true")):
        refused = trainctl("rerun", "2", *change)
        assert refused.exit_code == 2
        assert "the job runs a configured algorithm; change its parameters" in refused.stderr


@pytest.mark.parametrize("original", [EVERYTHING, PROGRAM], ids=["algorithm", "program"])
def test_the_printed_command_submits_the_same_request(
    training: ServerInThread, trainctl: Trainctl, original: pb.TrainRequest
) -> None:
    training.set_job(1, project="vision")
    training.service.submitted[1] = original
    printed = trainctl("clone", "1").stdout
    assert printed.isascii() or "\x1b" not in printed
    read = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {printed}"], capture_output=True, check=True
    ).stdout.decode()
    words = read.split("\0")[:-1]
    assert words[0] == "trainctl"
    detach = ["--detach"] if words[1] == "run" else []
    again = trainctl(*words[1:2], *detach, "--request-key", "k", *words[2:])
    assert again.stdout == "2\n", again.stderr
    assert training.service.submitted[2] == original
    assert training.service.projects[-1] == "vision"


def test_clone_changes_values_and_prints_json(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1)
    training.service.submitted[1] = EVERYTHING
    words = shlex.split(trainctl("clone", "1", "--set", "NOTE=x", "--name", "b").stdout)
    assert {"NOTE=x", "b"} < set(words)
    answer = json.loads(trainctl("clone", "1", "--json", "--set", "LR=1").stdout)
    assert (answer["metadata"]["parameters"]["LR"], answer["request_key"]) == ("1", "")


def test_clone_says_what_submit_cannot(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1)
    training.service.submitted[1] = pb.TrainRequest(
        pod_options=pb.PodOptions(tolerations=[pb.Toleration(key="gpu", toleration_seconds=3)])
    )
    assert "no option for toleration_seconds of gpu; `trainctl rerun 1`" in trainctl("clone", "1").stderr


@pytest.mark.parametrize("word", ["a b", "it's", "ä", "\x1b[2J", "\u202ehidden", "\\x1b", "$(rm)", ""])
def test_words_survive_a_shell_and_hide_nothing(word: str) -> None:
    printed = submissions.joined([word])
    assert printed.isprintable()
    read = subprocess.run(["bash", "-c", f"printf %s {printed}"], capture_output=True, check=True).stdout
    assert read.decode() == word
