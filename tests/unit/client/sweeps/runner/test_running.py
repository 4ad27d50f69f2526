"""A sweep from start to end."""

from __future__ import annotations

import json
from io import StringIO
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import grpc
import pytest
from rich.console import Console

from tests.support.sweeps import FILE, settings
from training_service._generated import training_service_pb2 as pb
from training_service.client.cli.render import sweeps
from training_service.client.sweeps.history import Trial

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fake_service import ServerInThread
    from tests.support.sweeps import Trainer
    from tests.support.trainctl import Trainctl


def rows(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines()]


@pytest.fixture(autouse=True)
def _trained(trainer: Trainer, file: Path) -> None:
    """Every test uses the fixtures `trainer` and `file`."""


def test_a_grid_tries_all_combinations_and_shows_the_best_first(trainctl: Trainctl, trainer: Trainer) -> None:
    result = trainctl("sweep", "search.toml", "--every", "0.01")
    assert result.exit_code == 0, result.stderr
    assert [line.split("\t")[:5] for line in result.stdout.splitlines()] == [
        ["3", "complete", "3.0", "4", "X=3"],
        ["2", "complete", "2.0", "3", "X=2"],
        ["1", "complete", "-1.0", "2", "X=1"],
        ["4", "complete", "-1.0", "5", "X=5"],
        ["0", "complete", "-6.0", "1", "X=0"],
    ]
    assert "trial 3 (X=3), job 4: complete, score 3" in result.stderr
    assert trainer.most_at_once == 4


def test_the_best_trial_is_shown_and_its_job_is_for_scripts(trainctl: Trainctl) -> None:
    assert trainctl("sweep", "search.sweep", "--best").exit_code == 3
    assert trainctl("sweep", "search.toml", "--every", "0.01", "-q").stdout == "4\n3\n2\n5\n1\n"
    assert trainctl("sweep", "search.sweep", "--best").stdout == "3\tcomplete\t3.0\t4\tX=3\t\n"
    assert trainctl("sweep", "search.sweep", "--best", "--quiet").stdout == "4\n"
    assert json.loads(trainctl("sweep", "search.sweep", "--best", "--json").stdout)["job_id"] == 4
    shown = trainctl.on_terminal("sweep", "search.sweep", "--best")
    assert shown.stdout == "trial 3 (X=3), job 4: complete, score 3\n"
    assert "fetch 4; once more: trainctl" in shown.stderr
    assert trainctl("sweep", "search.sweep", "--best", "--resume").exit_code == 2


def test_the_number_of_live_jobs_is_bounded(trainctl: Trainctl, trainer: Trainer) -> None:
    assert trainctl("sweep", "search.toml", "--every", "0.01", "--at-once", "2").exit_code == 0
    assert trainer.most_at_once == 2


def test_a_sweep_needs_no_file(trainctl: Trainctl, trainer: Trainer) -> None:
    what = ("--algorithm", "a", "-d", "1", "--version", "v1", "-m", "score", "--direction", "minimize")
    space = ("-s", "X=1..9", "-s", "LR=0.001..1.0:log", "-s", "F=32..64:step=16", "-s", "O=sgd,adam,010")
    how = ("--trials", "6", "-p", "EPOCHS=2", "-n", "2", "--name", "mine", "--every", "0.01")
    result = trainctl("sweep", *what, *space, *how, "--json")
    assert result.exit_code == 0, result.stderr
    values = [row["value"] for row in rows(result.stdout)]
    assert values == sorted(values)
    sent = trainer.service.jobs[1].metadata
    assert (sent.parameters["EPOCHS"], sent.parameters["PARALLEL_INSTANCES"]) == ("2", "2")
    assert sent.name.startswith("mine-")
    assert sent.parameters["F"] in ("32", "48", "64")
    assert sent.parameters["O"] in ("sgd", "adam", "010")
    assert 0.001 <= float(sent.parameters["LR"]) <= 1


def test_a_sweep_waits_for_room(training: ServerInThread, trainctl: Trainctl, trainer: Trainer) -> None:
    training.fail(pb.TrainRequest, grpc.StatusCode.RESOURCE_EXHAUSTED, "9 jobs are queued", times=3)
    result = trainctl("sweep", "search.toml", "--every", "0.01")
    assert (result.exit_code, len(trainer.keys)) == (0, 5)
    assert result.stderr.count("waiting for room: 9 jobs are queued") == 1


def test_failed_trials_have_a_reason_and_do_not_stop_the_others(
    training: ServerInThread, trainctl: Trainctl, file: Path
) -> None:
    file.write_text(FILE.replace("[0, 1, 2, 3, 5]", "[3]") + 'FAIL = ["yes"]\n')
    result = trainctl("sweep", "search.toml", "--every", "0.01", "--json")
    [row] = rows(result.stdout)
    assert (row["state"], row["reason"]) == ("failed", "rank 0 ended with exit code 1")
    assert result.exit_code == 1
    file.write_text(FILE)
    training.fail(pb.TrainRequest, grpc.StatusCode.INVALID_ARGUMENT, "X: 0 is too small")
    result = trainctl("sweep", "search.toml", "--folder", "b", "--every", "0.01", "--json")
    assert [row["reason"] for row in rows(result.stdout) if row["state"] == "failed"] == [
        "refused: X: 0 is too small"
    ]
    assert result.exit_code == 0


def test_too_many_failures_stop_the_sweep(
    training: ServerInThread, trainctl: Trainctl, trainer: Trainer
) -> None:
    training.fail(pb.TrainRequest, grpc.StatusCode.INVALID_ARGUMENT, "no", times=2)
    options = ("--every", "0.01", "--json")
    result = trainctl("sweep", "search.toml", *options, "--max-failures", "2", "--at-once", "1")
    assert (result.exit_code, len(rows(result.stdout)), trainer.keys) == (1, 2, [])
    assert "2 trials failed: the sweep submits no more" in result.stderr
    result = trainctl("sweep", "search.sweep", "--resume", *options, "--max-failures", "5")
    assert (result.exit_code, len(rows(result.stdout)), len(trainer.keys)) == (0, 5, 3)


def test_a_problem_of_all_trials_stops_the_sweep(training: ServerInThread, trainctl: Trainctl) -> None:
    training.fail(pb.TrainRequest, grpc.StatusCode.NOT_FOUND, "there is no algorithm 'parabola'")
    result = trainctl("sweep", "search.toml", "--every", "0.01")
    assert result.exit_code == 3
    assert "there is no algorithm 'parabola'" in result.stderr
    assert "To resume the sweep: trainctl sweep search.sweep --resume" in result.stderr


@pytest.mark.parametrize(
    ("code", "times"), [(grpc.StatusCode.NOT_FOUND, 1), (grpc.StatusCode.INVALID_ARGUMENT, 5)]
)
def test_a_sweep_with_wrong_settings_can_be_started_again(
    training: ServerInThread, trainctl: Trainctl, file: Path, code: grpc.StatusCode, times: int
) -> None:
    file.write_text(FILE.replace("parabola", "parabel"))
    training.fail(pb.TrainRequest, code, "there is no algorithm 'parabel'", times=times)
    result = trainctl("sweep", "search.toml", "--every", "0.01")
    assert result.exit_code != 0
    assert "correct" in result.stderr
    file.write_text(FILE)
    result = trainctl("sweep", "search.toml", "--every", "0.01", "--json")
    assert (result.exit_code, len(rows(result.stdout))) == (0, 5), result.stderr
    assert {job.metadata.algorithm for job in training.service.jobs.values()} == {"parabola"}
    assert (
        "already contains a sweep" in trainctl("sweep", "search.toml").stderr
    )  # a sweep with jobs is not replaced


def test_a_refused_sweep_can_be_resumed(training: ServerInThread, trainctl: Trainctl, file: Path) -> None:
    training.fail(pb.TrainRequest, grpc.StatusCode.NOT_FOUND, "there is no algorithm 'parabola'")
    assert trainctl("sweep", "search.toml", "--every", "0.01").exit_code == 3
    result = trainctl("sweep", "search.sweep", "--resume", "--every", "0.01", "--json")
    assert (result.exit_code, len(rows(result.stdout))) == (0, 5), result.stderr


def test_poor_trials_are_cancelled_and_shown_as_pruned(
    trainctl: Trainctl, trainer: Trainer, file: Path
) -> None:
    # The best trial comes first, and one runs at a time, so all later trials are worse.
    file.write_text(
        FILE.replace("0, 1, 2, 3, 5", "3, 0, 5") + "[pruning]\nmin_steps = 1\nreduction_factor = 2\n"
    )
    result = trainctl("sweep", "search.toml", "--every", "0.01", "--json", "--at-once", "1")
    assert result.exit_code == 0, result.stderr
    found = [(row["parameters"]["X"], row["state"], row["reason"]) for row in rows(result.stdout)]
    assert found == [
        (3, "complete", ""),
        (5, "pruned", "worse than other trials at step 1"),
        (0, "pruned", "worse than other trials at step 1"),
    ]
    assert [job.status for job in trainer.service.jobs.values()] == [pb.succeed, pb.cancelled, pb.cancelled]


def test_tpe_searches_and_prunes(trainctl: Trainctl, trainer: Trainer, file: Path) -> None:
    file.write_text(FILE.replace("[0, 1, 2, 3, 5]", "{low = -10.0, high = 10.0}").replace("grid", "tpe"))
    result = trainctl("sweep", "search.toml", "--trials", "30", "--every", "0.01", "--json")
    assert result.exit_code == 0, result.stderr
    found = rows(result.stdout)
    assert len(found) == len(trainer.keys) == 30
    assert abs(found[0]["parameters"]["X"] - 3) < 1
    assert {row["state"] for row in found} <= {"complete", "pruned"}


@pytest.mark.parametrize(
    ("metric", "value", "direction", "found"),
    [
        ("score", "best", "maximize", 3.0),
        ("score", "best", "minimize", 1.0),
        ("score", "last", "minimize", 3.0),
        ("test.score", "manifest", "maximize", 3.0),
    ],
)
def test_the_objective_is_read_from_the_series_or_the_manifest(
    trainctl: Trainctl, file: Path, metric: str, value: str, direction: str, found: float
) -> None:
    file.write_text(FILE.replace("0, 1, 2, 3, 5", "3"))
    goal = ("-m", metric, "--value", value, "--direction", direction)
    result = trainctl("sweep", "search.toml", "--every", "0.01", "--json", *goal)
    assert [row["value"] for row in rows(result.stdout)] == [found]


@pytest.mark.parametrize(
    ("metric", "value", "reason"),
    [
        ("nope", "last", "the job succeeded, but it reported no metric 'nope'; it reported: score"),
        ("nope", "manifest", "no 'nope': in place of 'nope', it has the keys test"),
        ("test.name", "manifest", "is 'x', not a finite number"),
    ],
)
def test_a_job_without_the_objective_is_a_failed_trial(
    trainctl: Trainctl, file: Path, metric: str, value: str, reason: str
) -> None:
    file.write_text(FILE.replace("0, 1, 2, 3, 5", "3"))
    result = trainctl("sweep", "search.toml", "--every", "0.01", "--json", "-m", metric, "--value", value)
    [row] = rows(result.stdout)
    assert (result.exit_code, row["state"], reason in row["reason"]) == (1, "failed", True)


def test_a_metric_that_the_first_finished_job_never_reported_stops_the_sweep(
    trainctl: Trainctl, trainer: Trainer
) -> None:
    result = trainctl("sweep", "search.toml", "--every", "0.01", "--at-once", "1", "-m", "scor")
    assert result.exit_code == 7
    assert "the job succeeded, but it reported no metric 'scor'; it reported: score. Correct" in result.stderr
    assert len(trainer.keys) == 1


def test_a_job_cancelled_by_a_user_is_a_cancelled_trial(trainctl: Trainctl, trainer: Trainer) -> None:
    def cancel_the_first(request: str, after_effect: bool) -> None:
        if request == "TrainRequest" and after_effect and len(trainer.keys) == 1:
            trainer.service.jobs[1].status = pb.cancelled

    trainer.when = cancel_the_first
    result = trainctl("sweep", "search.toml", "--every", "0.01", "--json")
    assert (result.exit_code, rows(result.stdout)[-1]["state"]) == (0, "cancelled")


def test_a_terminal_shows_a_table_with_escaped_text(trainctl: Trainctl, file: Path) -> None:
    file.write_text(FILE + 'N = ["[red]\\u001b[2J"]\n')
    result = trainctl.on_terminal("sweep", "search.toml", "--every", "0.01")
    assert result.exit_code == 0
    assert "Sweep search: 5 of 5 trials, 5 complete" in result.stdout
    assert "\x1b[2J" not in result.stdout


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_plot_is_written(trainctl: Trainctl, file: Path, kind: str) -> None:
    file.write_text(FILE + 'LR = {low = 0.1, high = 0.3, step = 0.1}\nO = ["$a$", "b"]\n')
    result = trainctl("sweep", "search.toml", "--every", "0.01", "--to", f"x.{kind}")
    assert (result.exit_code, f"wrote x.{kind}" in result.stderr) == (0, True)
    picture = file.with_name(f"x.{kind}")
    if kind == "png":
        assert picture.read_bytes().startswith(b"\x89PNG")
    else:
        assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_a_folder_alone_is_shown_without_calls(training: ServerInThread, trainctl: Trainctl) -> None:
    first = trainctl("sweep", "search.toml", "--every", "0.01")
    training.service.requests.clear()
    assert trainctl("sweep", "search.sweep").stdout == first.stdout
    assert training.service.requests == []


def test_a_long_table_keeps_the_best_and_live_trials() -> None:
    trials = [Trial(n, {"X": n}, "complete", n + 1, value=float(n)) for n in range(9)]
    trials.append(Trial(9, {"X": 9}, "submitted", 10))
    drawn = Console(width=100, file=StringIO())
    drawn.print(sweeps.table(settings(), 20, trials, {}, max_rows=3))
    assert isinstance(drawn.file, StringIO)
    rows = drawn.file.getvalue().splitlines()[2:]
    assert [row.split()[0] for row in rows] == ["8", "7", "9"]
