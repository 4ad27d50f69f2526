"""Each command of trainctl, in a pipe, as JSON and on a terminal."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl

HOSTILE = "[red]evil\x1b[2J\nname"
DIAGNOSIS = pb.Diagnosis(summary="It ran out of memory.", detail="Killed", resolution="Use less.")
SUBMIT = ("submit", "bert", "--dataset", "questions", "--version", "3f2a")


def metadata(name: str) -> pb.TrainingJobMetadata:
    return pb.TrainingJobMetadata(algorithm="bert", name=name, dataset_id="questions")


# submit


def test_submit_prints_the_bare_id_in_a_pipe(training: ServerInThread, trainctl: Trainctl) -> None:
    result = trainctl(*SUBMIT)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "1\n", "")


def test_submit_prints_json(trainctl: Trainctl) -> None:
    assert json.loads(trainctl(*SUBMIT, "--json").stdout) == {"job_id": 1}


def test_submit_on_a_terminal_says_how_to_follow(trainctl: Trainctl) -> None:
    assert trainctl.on_terminal(*SUBMIT).stdout == "Submitted job 1. Follow it with: trainctl watch 1\n"


def test_submit_sends_what_it_is_given(training: ServerInThread, trainctl: Trainctl) -> None:
    given = ("--name", "nightly", "--instances", "3", "--model", "m", "--request-key", "k")
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
        )
    ]


def test_submit_sends_what_the_pods_are_to_have(training: ServerInThread, trainctl: Trainctl) -> None:
    given = ("-r", "cpu=2", "-r", "nvidia.com/gpu=1", "--nproc-per-node", "2", "--node-selector", "zone=a")
    more = ("--priority-class", "high", "--label", "team=nlp", "--annotation", "note=x=y")
    taints = ("--toleration", "gpu=true:NoSchedule", "--toleration", "spot", "--toleration", "old:NoExecute")
    assert trainctl(*SUBMIT, *given, *more, *taints).exit_code == 0
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
    )


def test_submit_says_nothing_of_pods_unless_asked(training: ServerInThread, trainctl: Trainctl) -> None:
    assert trainctl(*SUBMIT).exit_code == 0
    assert not training.service.requests[0].HasField("pod_options")


def test_submit_sends_how_often_it_is_tried_and_how_long_it_may_take(
    training: ServerInThread, trainctl: Trainctl
) -> None:
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
        (("--backoff", "soon"), "'soon' is not a span of time"),
        (("--run-deadline", "-1"), "'-1' is not a span of time"),
        (("--run-deadline", "9999d"), "up to 3650d"),
        (("--max-attempts", "0"), "--max-attempts"),
        (("-r", "cpu"), "'cpu' is not KEY=VALUE"),
        (("--label", "a=1", "--label", "a=2"), "'a' is given twice"),
        (("-p", "EPOCHS"), "'EPOCHS' is not KEY=VALUE"),
        (("-p", "=5"), "'=5' is not KEY=VALUE"),
        (("-p", "A=1", "-p", "A=2"), "'A' is given twice"),
        (("--instances", "0"), "--instances"),
    ],
)
def test_submit_refuses_a_parameter_that_makes_no_sense(
    training: ServerInThread, trainctl: Trainctl, parameters: tuple[str, ...], complaint: str
) -> None:
    result = trainctl(*SUBMIT, *parameters)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert training.service.requests == []


def test_submit_and_follow_prints_the_id_first_and_ends_with_the_outcome(
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


def test_submit_and_follow_on_a_terminal_shows_why_it_failed(
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


def test_submit_that_may_have_been_heard_says_how_to_repeat_it(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.fail(pb.TrainRequest, grpc.StatusCode.DEADLINE_EXCEEDED, after_the_deed=True)
    result = trainctl(*SUBMIT)
    assert result.exit_code == 4
    key = training.service.requests[0].request_key
    assert f"add --request-key {key}" in result.stderr
    assert trainctl(*SUBMIT, "--request-key", key).stdout == "1\n"


# list


def test_list_prints_a_line_a_job_in_a_pipe(training: ServerInThread, trainctl: Trainctl) -> None:
    training.tell(1, metadata=metadata("a"), instances=1)
    training.tell(2, metadata=metadata(HOSTILE), status=pb.running, instances=2)
    assert (
        trainctl("list").stdout
        == "2\trunning\tbert\t[red]evil\\x1b[2J\\nname\t2\t\n1\tqueuing\tbert\ta\t1\t\n"
    )


def test_list_prints_a_json_object_a_line(training: ServerInThread, trainctl: Trainctl) -> None:
    training.tell(1, metadata=metadata(HOSTILE), progress=pb.Progress(step=3))
    training.tell(2, status=pb.cancelled)
    newest, oldest = map(json.loads, trainctl("list", "--json").stdout.splitlines())
    assert (newest["job_id"], newest["status"]) == (2, "cancelled")
    assert (oldest["status"], oldest["positionInQueue"]) == ("queuing", 0)
    assert oldest["metadata"]["name"] == HOSTILE
    assert oldest["progress"]["step"] == "3"


def test_list_draws_a_table_on_a_terminal(training: ServerInThread, trainctl: Trainctl) -> None:
    training.tell(12, metadata=metadata(HOSTILE), status=pb.running)
    heading, row = trainctl.on_terminal("list").stdout.splitlines()
    assert re.findall(r"[A-Z]{2,}", heading)[:3] == ["JOB", "STATUS", "ALGORITHM"]
    assert re.search(r"12.*running.*bert.*\[red\]evil\\x1b\[2J", row)


def test_list_filters(training: ServerInThread, trainctl: Trainctl) -> None:
    training.tell(1, metadata=metadata("nightly-1"), status=pb.running)
    training.tell(2, metadata=metadata("nightly-2"), status=pb.succeed)
    training.tell(3, metadata=metadata("nightly-3"), status=pb.queuing)
    training.tell(4, metadata=metadata("other"), status=pb.running)
    result = trainctl(
        "list", "--state", "running", "--state", "queuing", "--name", "nightly", "--algorithm", "bert"
    )
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == ["3", "1"]


def test_list_goes_through_the_pages_and_tells_when_there_is_more(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    for job_id in range(1, 1203):
        training.service.jobs[job_id] = pb.GetTrainingStatusResponse(job_id=job_id)
    result = trainctl("list", "--limit", "1200")
    assert len(result.stdout.splitlines()) == 1200
    assert "more than these 1200" in result.stderr
    assert len(training.service.requests) == 2
    assert trainctl("list", "--limit", "1202").stderr == ""


def test_list_of_nothing_is_nothing_in_a_pipe(trainctl: Trainctl) -> None:
    result = trainctl("list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_list_names_the_states_that_there_are(trainctl: Trainctl) -> None:
    result = trainctl("list", "--state", "paused")
    assert result.exit_code == 2
    assert "cancelled" in result.stderr


# status


def test_status_in_a_pipe_has_a_label_a_line(training: ServerInThread, trainctl: Trainctl) -> None:
    training.tell(1, metadata=metadata(HOSTILE), status=pb.failure, diagnosis=DIAGNOSIS)
    result = trainctl("status", "1")
    assert result.exit_code == 0
    assert "name: [red]evil\\x1b[2J\\nname\n" in result.stdout
    assert "what to do: Use less.\n" in result.stdout


def test_status_as_json_is_the_message(training: ServerInThread, trainctl: Trainctl) -> None:
    training.tell(1, status=pb.failure, diagnosis=DIAGNOSIS)
    told = json.loads(trainctl("--json", "status", "1").stdout)
    assert told["diagnosis"] == {
        "category": "",
        "summary": "It ran out of memory.",
        "detail": "Killed",
        "resolution": "Use less.",
        "retryable": False,
    }


def test_status_on_a_terminal_explains_a_failure(training: ServerInThread, trainctl: Trainctl) -> None:
    training.tell(1, metadata=metadata(HOSTILE), status=pb.failure, diagnosis=DIAGNOSIS)
    shown = trainctl.on_terminal("status", "1").stdout
    assert r"[red]evil\x1b[2J\nname" in shown
    assert re.search("What to do.*Use less.", shown)


def test_describe_tells_every_move(training: ServerInThread, trainctl: Trainctl) -> None:
    moves = [
        pb.Move(status=pb.queuing, at=Timestamp(seconds=60)),
        pb.Move(status=pb.failure, at=Timestamp(seconds=90), attempt=1, diagnosis=DIAGNOSIS),
    ]
    training.tell(1, status=pb.failure, diagnosis=DIAGNOSIS, moves=moves)
    story = ["1970-01-01T00:01:00Z submitted", "1970-01-01T00:01:30Z failure: It ran out of memory."]
    printed = trainctl("describe", "1").stdout
    assert printed.endswith(f"story: {story[0]}\n    {story[1]}\n")
    assert "failure: It ran out of memory." in trainctl.on_terminal("describe", "1").stdout


_COMMANDS = ["status", "describe", "watch", "wait", "logs", "plot", "artifacts", "fetch", "cancel"]


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_job_that_does_not_exist_is_exit_code_3(trainctl: Trainctl, command: str) -> None:
    result = trainctl(command, "42")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "trainctl: Job 42 doesn't exist\n"


@pytest.mark.parametrize("job", ["0", "-1", "x", str(2**31)])
def test_what_cannot_be_a_job_id_is_wrong_usage(trainctl: Trainctl, job: str) -> None:
    assert trainctl("status", job).exit_code == 2


# watch, wait


@pytest.mark.parametrize(("state", "exit_code"), [(pb.succeed, 0), (pb.failure, 1), (pb.cancelled, 5)])
@pytest.mark.parametrize("command", ["watch", "wait"])
def test_the_outcome_of_a_job_is_the_exit_code(
    training: ServerInThread,
    trainctl: Trainctl,
    command: str,
    state: pb.TrainingStatus.ValueType,
    exit_code: int,
) -> None:
    training.tell(1, status=state)
    word = pb.TrainingStatus.Name(state)
    piped, drawn = trainctl(command, "1"), trainctl.on_terminal(command, "1")
    assert (piped.exit_code, piped.stdout.strip().rstrip(", ")) == (exit_code, f"job 1: {word}")
    assert drawn.exit_code == exit_code
    assert word in drawn.stdout
    assert json.loads(trainctl(command, "1", "--json").stdout)["status"] == word


def test_wait_tells_when_its_time_is_up(training: ServerInThread, trainctl: Trainctl) -> None:
    training.tell(1, status=pb.running)
    result = trainctl("wait", "1", "--timeout", "0.1")
    assert (result.exit_code, result.stdout) == (6, "")
    assert result.stderr == "trainctl: job 1 has not ended within 0.1 s\n"


# cancel


def test_cancel_says_what_became_of_the_job(training: ServerInThread, trainctl: Trainctl) -> None:
    training.tell(1, status=pb.queuing)
    training.tell(2, status=pb.succeed)
    assert trainctl.on_terminal("cancel", "1").stdout == "Job 1 is cancelled.\n"
    assert trainctl.on_terminal("cancel", "2").stdout == "Job 2 had ended before: succeed.\n"
    assert trainctl("cancel", "1").stdout == "job 1: cancelled\n"
    assert json.loads(trainctl("cancel", "2", "--json").stdout)["status"] == "succeed"


# the service is not there


@pytest.mark.parametrize("arguments", [SUBMIT, ("list",), ("status", "1"), ("watch", "1"), ("logs", "1")])
def test_nobody_there_is_one_line_whatever_was_asked(
    hasty: None, trainctl_at: Callable[[str], Trainctl], dead_address: str, arguments: tuple[str, ...]
) -> None:
    for run in (trainctl_at(dead_address), trainctl_at(dead_address).on_terminal):
        result = run(*arguments)
        assert result.exit_code == 4
        assert f"cannot reach the training service at {dead_address}: Connection refused" in result.stderr
        assert result.stderr.count("\n") == 1


def test_something_else_at_the_address_is_one_line_too(
    hasty: None, trainctl_at: Callable[[str], Trainctl], silent_address: str
) -> None:
    result = trainctl_at(silent_address)("list")
    assert result.exit_code == 4
    assert (
        f"cannot reach the training service at {silent_address}: connection attempt timed out"
        in result.stderr
    )
    assert result.stderr.count("\n") == 1


# global options and help


def test_global_options_may_stand_before_and_behind_the_command(
    training: ServerInThread, trainctl_at: Callable[[str], Trainctl]
) -> None:
    training.tell(1)
    elsewhere = trainctl_at("nowhere.invalid:1")
    for arguments in (
        ("--json", "-a", training.address, "status", "1"),
        ("status", "--json", "1", "--address", training.address),
        ("-a", "nowhere.invalid:2", "status", "1", "-a", training.address, "--json"),
    ):
        assert json.loads(elsewhere(*arguments).stdout)["job_id"] == 1


def test_help_lists_commands_and_exit_codes(trainctl: Trainctl) -> None:
    shown = trainctl("--help").stdout
    for command in ("submit", "list", "status", "watch", "logs", "cancel", "wait"):
        assert command in shown
    for meaning in ("job failed", "no such job", "not there", "time to wait is up", "Ctrl-C"):
        assert meaning in shown
