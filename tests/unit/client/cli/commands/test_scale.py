"""trainctl scale: a study runs each number of instances once, and shows law, prediction and worth."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.scaling_machines import Machines
    from tests.support.trainctl import Trainctl

FAST = ("--every", "0.01")
STUDY = ("scale", "sums", "--instances", "1,2,4,8", "--folder", "sums.scale", *FAST)


def shown(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines()]


def test_a_study_measures_each_number_once_and_finds_the_law(trainctl: Trainctl, machines: Machines) -> None:
    result = trainctl("--json", *STUDY)
    assert result.exit_code == 0, result.stderr
    [series] = shown(result.stdout)
    assert [row["instances"] for row in series["points"]] == [1, 2, 4, 8]
    assert series["law"]["name"] == "amdahl"
    assert series["law"]["rest"] / series["law"]["work"] == pytest.approx(0.05)
    last = series["points"][-1]
    assert last["speed_up"] == pytest.approx(1 / (0.05 + 0.95 / 8))
    assert last["efficiency"] == pytest.approx(last["speed_up"] / 8)
    assert last["predicted_from_1_and_2"] == pytest.approx(last["examples_per_second"])
    assert series["worth"] == {"efficiency": 9}  # the ninth adds 50.3 %, the tenth 46.8 %
    assert (len(machines.keys), machines.most_at_once) == (4, 1)


def test_the_share_of_waiting_is_shown_where_it_is_reported(trainctl: Trainctl, machines: Machines) -> None:
    [series] = shown(trainctl("--json", *STUDY).stdout)
    shares = [row["waiting"] for row in series["points"]]
    assert shares == [None, pytest.approx(0.1), pytest.approx(0.3), pytest.approx(0.7)]
    assert [line.split("\t")[6] for line in trainctl("scale", "sums.scale").stdout.splitlines()[:4]] == [
        *("", "10%", "30%", "70%")
    ]


def test_prices_decide_what_is_worth_it_without_another_run(trainctl: Trainctl, machines: Machines) -> None:
    assert trainctl(*STUDY).exit_code == 0
    [series] = shown(
        trainctl("--json", "scale", "sums.scale", "--price", "1", "--value-of-time", "1.9").stdout
    )
    assert series["worth"]["price"] == 6  # sqrt(1.9 x 0.95 / 0.05) = 6.0
    assert series["points"][0]["cost_of_example"] == pytest.approx(1 / 3600 / 100)
    [strict] = shown(trainctl("--json", "scale", "sums.scale", "--least-efficiency", "0.9").stdout)
    assert strict["worth"]["efficiency"] == 2
    assert len(machines.keys) == 4


def test_a_series_for_each_other_value_has_a_law(trainctl: Trainctl, machines: Machines) -> None:
    result = trainctl("--json", *STUDY, "-s", "BUCKET_MB=1,25")
    assert [series["parameters"] for series in shown(result.stdout)] == [{"BUCKET_MB": 1}, {"BUCKET_MB": 25}]
    assert len(machines.keys) == 8


def test_series_are_compared_on_the_most_instances_of_all(trainctl: Trainctl, machines: Machines) -> None:
    result = trainctl("--json", *STUDY, "-s", "BUCKET_MB=1,25")
    assert [series["slower_than_fastest"] for series in shown(result.stdout)] == [pytest.approx(0.2), 0.0]
    words = trainctl("scale", "sums.scale").stdout
    assert "On 8 instances, 20.0% slower than BUCKET_MB=25 with 592.6 examples/s." in words
    assert "On 8 instances, this is the fastest of 2 series." in words


def test_the_last_loss_and_the_bytes_of_a_step_are_shown(trainctl: Trainctl, machines: Machines) -> None:
    [series] = shown(trainctl("--json", *STUDY).stdout)
    assert [row["loss"] for row in series["points"]] == [4.0] * 4
    assert [row["sent_bytes_a_step"] for row in series["points"]] == [None, 2e6, 2e6, 2e6]
    assert trainctl("scale", "sums.scale").stdout.splitlines()[1].split("\t")[-2:] == ["4", "2.0 MB"]


def test_each_placement_is_a_series(trainctl: Trainctl, machines: Machines) -> None:
    result = trainctl("--json", *STUDY, "--placements", "any,near:zone+apart:machine+strict")
    assert [series["parameters"] for series in shown(result.stdout)] == [
        {"placement": "any"},
        {"placement": "near:zone+apart:machine+strict"},
    ]
    requests = [request for request in machines.service.requests if isinstance(request, pb.TrainRequest)]
    assert all("placement" not in request.metadata.parameters for request in requests)
    assert not any(request.HasField("pod_options") for request in requests[:4])
    assert {request.pod_options.placement.SerializeToString() for request in requests[4:]} == {
        pb.Placement(near="zone", apart="machine", strict=True).SerializeToString()
    }


def test_an_endless_job_ends_once_it_has_reported_enough(trainctl: Trainctl, machines: Machines) -> None:
    machines.endless = True
    [series] = shown(trainctl("--json", *STUDY, "--enough", "5").stdout)
    assert series["law"]["name"] == "amdahl"
    assert [row["state"] for row in series["points"]] == ["complete"] * 4
    assert {job.status for job in machines.service.jobs.values()} == {pb.cancelled}


def test_a_law_that_explains_nothing_is_named_as_a_guess(trainctl: Trainctl, machines: Machines) -> None:
    machines.noise = {1: 10.0}
    assert "so what follows is a guess" in trainctl(*STUDY).stdout


def test_weak_scaling_multiplies_a_parameter_by_the_instances(trainctl: Trainctl, machines: Machines) -> None:
    result = trainctl("--json", *STUDY, "--weak", "BATCH_SIZE=100")
    [series] = shown(result.stdout)
    assert series["scaling"] == "weak"
    batches = [job.metadata.parameters["BATCH_SIZE"] for job in machines.service.jobs.values()]
    assert batches == ["100", "200", "400", "800"]
    assert series["points"][-1]["efficiency"] == pytest.approx(1.0)


def test_a_failed_point_is_named_and_the_law_says_what_it_was_fitted_on(
    trainctl: Trainctl, machines: Machines
) -> None:
    machines.failing = {4}
    result = trainctl(*STUDY)
    assert "4 instances: no point, rank 1 was preempted" in result.stdout
    assert "fitted on 1, 2, 8 instances" in result.stdout


def test_a_study_with_one_point_or_none_says_so(trainctl: Trainctl, machines: Machines) -> None:
    one = trainctl("scale", "sums", "--instances", "2", "--folder", "one.scale", *FAST)
    assert "fitted on 2 instances: one number of instances says nothing about scaling" in one.stdout
    machines.failing = {2}
    none = trainctl("scale", "sums", "--instances", "2", "--folder", "none.scale", *FAST)
    assert "No job has reported a throughput, so no law was fitted." in none.stdout
    assert none.exit_code != 0


def test_a_resumed_study_runs_nothing_twice(trainctl: Trainctl, machines: Machines, tmp_path: Path) -> None:
    assert trainctl(*STUDY).exit_code == 0
    events = tmp_path / "sums.scale" / "trials.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join(lines[:4]) + lines[4][:9])  # as after a kill in the middle of a write
    again = trainctl("--json", "scale", "sums.scale", "--resume", *FAST)
    assert again.exit_code == 0, again.stderr
    assert len(shown(again.stdout)[0]["points"]) == 4
    assert len(machines.keys) == 4


def test_a_study_is_plotted(trainctl: Trainctl, machines: Machines, tmp_path: Path) -> None:
    assert trainctl(*STUDY, "--to", "study.png").exit_code == 0
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--instances", "1,x"), "'x' is not a number of instances"),
        (("--instances", "0"), "'0' is not a number of instances"),
        (("--instances", "2,2"), "the choice '2' is given twice"),
        ((), "give the numbers to try"),
        (("--instances", "1", "--weak", "BATCH_SIZE=a"), "BATCH_SIZE is 'a'; it must be a whole number"),
        (("--instances", "1", "--weak", "B=1", "-p", "B=2"), "B is in per_instance and in parameters"),
        (("--instances", "1", "--weak", "B=1", "--strong"), "give either --strong or --weak"),
        (("--instances", "1", "--price", "-1"), "-1 must be 0 or more"),
        (("--instances", "1", "--value-of-time", "1"), "needs --price above 0"),
        (("--instances", "1", "--least-efficiency", "0"), "must be above 0 and at most 1"),
        (("--instances", "1", "--placements", "near:town"), "the placement 'near:town' is not allowed"),
        (("--instances", "1", "--placements", "strict"), "the placement 'strict' is not allowed"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_submitted(
    trainctl: Trainctl, machines: Machines, tmp_path: Path, options: tuple[str, ...], complaint: str
) -> None:
    result = trainctl("scale", "sums", *options)
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.replace("│", " ").split())
    assert machines.keys == []
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_of_other_parameters_is_not_a_study(trainctl: Trainctl, machines: Machines) -> None:
    sweep = ("--algorithm", "a", "-s", "LR=1,2", "--method", "grid", "-m", "loss", "--direction", "minimize")
    trainctl("sweep", *sweep, "--folder", "lr.sweep", *FAST)
    result = trainctl("scale", "lr.sweep")
    assert result.exit_code == 2
    assert "does not vary PARALLEL_INSTANCES" in " ".join(result.stderr.replace("│", " ").split())
