"""trainctl submit --instances auto: a short study chooses the number once, within the bounds of the user."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.fake_service import ENDED
from tests.support.patience import PATIENCE

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.support.scaling_machines import Machines
    from tests.support.trainctl import Trainctl

AUTO = ("submit", "sums", "--instances", "auto", "--every", "0.01", "--enough", "5")


@pytest.fixture(autouse=True)
def endless(machines: Machines) -> None:
    machines.endless = True


def counts(machines: Machines) -> list[int]:
    return [int(each.metadata.parameters["PARALLEL_INSTANCES"]) for each in requests(machines)]


def requests(machines: Machines) -> list[Any]:
    """The submissions that became jobs, in their order."""
    return list(machines.service.submitted.values())


def test_the_number_that_is_worth_it_is_submitted(trainctl: Trainctl, machines: Machines) -> None:
    result = trainctl(*AUTO, "--max-instances", "16", "-p", "BATCH_SIZE=100", "--name", "mine")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "6\n"
    assert counts(machines) == [1, 2, 4, 8, 16, 8]  # of 9 to 16, each adds 41 % of the speed of one
    job = requests(machines)[-1].metadata
    assert (job.name, dict(job.parameters)) == ("mine", {"BATCH_SIZE": "100", "PARALLEL_INSTANCES": "8"})
    assert "8 instances: the choice of the study in sums.auto among 1, 2, 4, 8, 16" in result.stderr
    assert [job.status in ENDED for job in machines.service.jobs.values()] == [True] * 5 + [False]


def test_prices_decide_if_they_are_given(trainctl: Trainctl, machines: Machines) -> None:
    result = trainctl(*AUTO, "--max-instances", "8", "--price", "1", "--value-of-time", "0.2")
    assert (result.exit_code, counts(machines)[-1]) == (0, 2), result.stderr


def test_the_lower_bound_holds(trainctl: Trainctl, machines: Machines) -> None:
    bounds = ("--min-instances", "3", "--max-instances", "7", "--least-efficiency", "1")
    assert trainctl(*AUTO, *bounds).exit_code == 0
    assert counts(machines) == [3, 6, 7, 3]


def test_a_number_that_fails_is_not_chosen(trainctl: Trainctl, machines: Machines) -> None:
    machines.failing = {4}
    result = trainctl(*AUTO, "--max-instances", "4")
    assert counts(machines) == [1, 2, 4, 2]
    assert "4 instances: no point, rank 1 was preempted" in result.stderr


def test_without_any_throughput_no_job_is_submitted(trainctl: Trainctl, machines: Machines) -> None:
    machines.failing = {1, 2}
    result = trainctl(*AUTO, "--max-instances", "2")
    assert (result.exit_code, counts(machines)) == (7, [1, 2])
    assert "no job of the study in sums.auto reported examples_per_second" in result.stderr


def test_the_same_command_again_gives_the_same_job(trainctl: Trainctl, machines: Machines) -> None:
    once, again = (trainctl(*AUTO, "--max-instances", "2") for _ in range(2))
    assert once.stdout == again.stdout == "3\n"
    assert len(machines.keys) == 3


@pytest.mark.parametrize(
    ("request_name", "number", "after_effect"),
    [
        *(("TrainRequest", number, after_effect) for number in (1, 2, 3) for after_effect in (False, True)),
        ("GetTrainingMetricsRequest", 2, False),
        ("CancelTrainingRequest", 1, False),
        ("CancelTrainingRequest", 2, False),
    ],
)
def test_after_a_kill_the_same_command_runs_nothing_twice(
    trainctl: Trainctl, machines: Machines, tmp_path: Path, request_name: str, number: int, after_effect: bool
) -> None:
    command, left = (*AUTO, "--max-instances", "2"), [number]
    process: Future[subprocess.Popen[str]] = Future()

    def kill(request: str, after: bool) -> None:
        left[0] -= (request, after) == (request_name, after_effect)
        if left[0] == 0:
            process.result(PATIENCE).kill()

    machines.when = kill
    with trainctl.process(*command, cwd=tmp_path) as made:
        process.set_result(made)
        made.wait(timeout=PATIENCE)
    machines.when = lambda request, after: None
    result = trainctl(*command)
    assert result.exit_code == 0, result.stderr
    assert counts(machines) == [1, 2, 2]
    assert len(machines.keys) == 3
    assert [job.status in ENDED for job in machines.service.jobs.values()] == [True, True, False]


def test_the_study_has_the_options_of_the_job(trainctl: Trainctl, machines: Machines) -> None:
    options = ("--near", "rack", "-r", "cpu=2", "--run-deadline", "1h", "--on-nonfinite", "fail")
    assert trainctl(*AUTO, "--max-instances", "2", *options).exit_code == 0
    first, *_, job = requests(machines)
    for name in ("pod_options", "deadlines", "number_policy"):
        assert getattr(first, name) == getattr(job, name)
        assert first.HasField(name)


def test_the_study_of_another_job_is_not_taken(trainctl: Trainctl, machines: Machines) -> None:
    assert trainctl(*AUTO, "--max-instances", "2").exit_code == 0
    other = trainctl(*AUTO, "--max-instances", "2", "-p", "LR=1")
    assert other.exit_code == 2
    assert "'sums.auto' has the study of another job or of other bounds" in plain(other.stderr)
    assert len(machines.keys) == 3


def test_an_elastic_job_gets_the_lower_bound_as_its_minimum(
    trainctl: Trainctl, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training_service.client.cli.auto_instances._is_elastic", lambda *_: True)
    assert trainctl(*AUTO, "--max-instances", "4").exit_code == 0
    assert dict(requests(machines)[-1].metadata.parameters) == {
        "PARALLEL_INSTANCES": "4",
        "MIN_INSTANCES": "1",
    }


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--instances", "some"), "'some' must be a whole number above 0, or auto"),
        (("--instances", "0"), "'0' must be a whole number above 0, or auto"),
        (("--instances", "auto"), "missing; --instances auto needs it"),
        (("--instances", "auto", "--min-instances", "2", "--max-instances", "2"), "2 must be below"),
        (("--instances", "2", "--max-instances", "4"), "it needs --instances auto"),
        (("--price", "4"), "it needs --instances auto"),
        (("--instances", "auto", "--max-instances", "2", "--least-efficiency", "0"), "above 0 and at most 1"),
        (("--instances", "auto", "--max-instances", "2", "-p", "PARALLEL_INSTANCES=2"), "both"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_submitted(
    trainctl: Trainctl, machines: Machines, tmp_path: Path, options: tuple[str, ...], complaint: str
) -> None:
    result = trainctl("submit", "sums", *options)
    assert result.exit_code == 2
    assert complaint in plain(result.stderr)
    assert (machines.keys, list(tmp_path.iterdir())) == ([], [])


def plain(text: str) -> str:
    return " ".join(text.replace("│", " ").split())
