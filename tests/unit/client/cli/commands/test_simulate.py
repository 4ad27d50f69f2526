"""trainctl simulate: figures side by side, plots, and errors that name the option or the line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from google.protobuf.duration_pb2 import Duration

from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    lines = [f"{at},{100 + at % 7 * 50},{(1, 1, 2, 4)[at % 4]}" for at in range(60)]
    path.write_text("\n".join(("submit_s,run_s,gpus", *lines)))
    return path


def test_it_prints_a_line_for_each_policy_in_a_pipe(trainctl: Trainctl, trace: Path) -> None:
    result = trainctl("simulate", str(trace), "--policy", "fifo", "--policy", "easy")
    assert result.exit_code == 0, result.stderr
    names = [line.split("\t")[0] for line in result.stdout.splitlines()]
    assert names == ["fifo", "easy"]
    assert all(len(line.split("\t")) == 5 for line in result.stdout.splitlines())


def test_what_ifs_stand_beside_the_base(trainctl: Trainctl, trace: Path) -> None:
    options = ("--policy", "easy", "--add", "default=8", "--queues", "3", "--quota", "q1=2")
    printed = trainctl("simulate", str(trace), *options, "--json").stdout.splitlines()
    base, more = map(json.loads, printed)
    assert (base["instances"], more["instances"]) == (8, 16)
    assert more["scenario"] == "easy, default+8, quota q1=2"
    assert more["waiting_s"]["mean"] < base["waiting_s"]["mean"]
    assert set(base["waiting_by_queue_s"]) == {"q1", "q2", "q3"}


def test_what_preemption_would_cost_stands_beside_the_base(trainctl: Trainctl, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("submit_s,run_s,gpus,priority,saves\n0,5000,8,0,never\n1000,60,8,1,\n")
    options = ("simulate", str(trace), "--priorities", "--preempt")
    base, changed = map(json.loads, trainctl(*options, "--json").stdout.splitlines())
    assert (base["stopped"], base["lost_instance_s"]) == (0, 0)
    assert changed["scenario"] == "planner, preempt"
    # 1,000 s of work, 10 s until the group has ended, and 60 s to restart
    assert (changed["stopped"], changed["resized"], changed["lost_instance_s"]) == (1, 0, 8 * 1070)
    shown = trainctl.on_terminal(*options).stdout
    assert "stopped for others" in shown
    assert "2.38 instance h" in shown


def test_a_terminal_gets_tables(trainctl: Trainctl, trace: Path) -> None:
    shown = trainctl.on_terminal("simulate", str(trace), "--queues", "2", "--load", "0.9").stdout
    for text in ("utilisation", "mean waiting by size", "mean waiting by queue", "4 instances"):
        assert text in shown


def test_jobs_that_never_start_are_named(trainctl: Trainctl, trace: Path) -> None:
    shown = trainctl.on_terminal("simulate", str(trace), "--capacity", "2", "--policy", "easy").stdout
    assert "15 jobs never started" in shown


def test_a_plot_has_utilisation_waiting_fairness_and_shares(
    trainctl: Trainctl, trace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "plot.svg"
    options = ("--queues", "2", "--add", "default=1", "--plot", str(path))
    result = trainctl("simulate", str(trace), *options)
    assert result.exit_code == 0, result.stderr
    assert f"wrote {path}" in result.stderr
    axes = [each for each in ElementTree.parse(path).iter() if each.get("id", "").startswith("axes_")]
    assert len(axes) == 5


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--capacity", "0"), "greater than or equal to 1"),
        (("--load", "0"), "greater than or equal to 0.01"),
        (("--policy", "magic"), "'magic' is not one of"),
        (("--add", "a100"), "'a100' is not KEY=VALUE"),
        (("--add", "a100=x"), "a100 is 'x'; it must be a whole number"),
        (("--add", "a100=--5"), "a100 is '--5'; it must be a whole number"),
        (("--add", "default=-9"), "leaves -1 instances"),
        (("--quota", "nope=1"), "no job is in queue 'nope'; queues: default"),
        (("--quota", "default=9"), "the quotas are 9 instances in all; flavor default has 8"),
        (("--queues", "0"), "greater than or equal to 1"),
        (("--since", "1e9"), "no job was submitted after 1e+09 s"),
    ],
)
def test_a_wrong_option_is_named(
    trainctl: Trainctl, trace: Path, options: tuple[str, ...], problem: str
) -> None:
    result = trainctl("simulate", str(trace), *options)
    assert result.exit_code == 2
    assert problem in " ".join(result.stderr.replace("│", " ").split())


def test_a_bad_line_of_the_trace_is_named(trainctl: Trainctl, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("submit_s,run_s,gpus\n1,2,3\n1,-2,3\n")
    result = trainctl("simulate", str(path))
    assert result.exit_code == 2
    assert "line 3: run_s is '-2'" in " ".join(result.stderr.replace("│", " ").split())
    assert "cannot read" in trainctl("simulate", str(tmp_path / "none.csv")).stderr
    assert "cannot read" in trainctl("simulate", str(tmp_path)).stderr


def test_a_picture_that_cannot_be_written_is_named(trainctl: Trainctl, trace: Path) -> None:
    result = trainctl("simulate", str(trace), "--plot", str(trace / "plot.svg"))
    assert result.exit_code == 2
    assert "cannot write" in result.stderr
    result = trainctl("simulate", str(trace), "--plot", "plot.txt")
    assert "must end in .png, .svg, .pdf" in result.stderr


def test_without_a_file_the_queue_of_the_service_is_simulated(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.service.queue.CopyFrom(
        pb.GetQueueSnapshotResponse(
            flavors=[
                pb.SnapshotFlavor(name="a100", capacity={"instances": 4, "nvidia.com/gpu": 32}),
                pb.SnapshotFlavor(name="spot", capacity={"instances": 8, "nvidia.com/gpu": 8}),
            ],
            queues=[pb.SnapshotQueue(name="vision", weight=1), pb.SnapshotQueue(name="#1", weight=1)],
            shapes=[pb.SnapshotShape(parts=[pb.SnapshotPart(count=4, each={"nvidia.com/gpu": 8})])],
            jobs=[
                pb.SnapshotJob(job_id=1, project="vision", queue="vision", expected_seconds=60),
                pb.SnapshotJob(queue="#1", expected_seconds=60),
            ],
            omitted_jobs=5,
            reservations=10,
            usage_half_life=Duration(seconds=60),
        )
    )
    shown = trainctl.on_terminal("simulate", "--add", "a100=4").stdout
    for text in ("of nvidia.com/gpu", "mean waiting by project", "(others)", "mean waiting by queue", "#1"):
        assert text in shown
    result = trainctl("simulate", "--add", "a100=4", "--quota", "vision=a100/nvidia.com/gpu=8", "--json")
    base, more = map(json.loads, result.stdout.splitlines())
    assert (base["end_s"], more["end_s"]) == (120, 60)
    assert more["scenario"] == "planner, a100+4, quota vision=a100/nvidia.com/gpu=8"
    assert "5 further jobs left out" in result.stderr
    for words, problem in (
        (("--add", "h100=1"), "there is no such flavor; allowed: a100, spot"),
        (("--capacity", "9"), "the service has the flavors a100, spot; use --add FLAVOR=N"),
        (("--policy", "easy"), "policy easy counts instances only"),
    ):
        assert problem in " ".join(trainctl("simulate", *words).stderr.replace("│", " ").split())


def test_options_of_a_service_are_refused_with_a_trace(trainctl: Trainctl, trace: Path) -> None:
    result = trainctl("simulate", str(trace), "--assume", "1h")
    assert result.exit_code == 2
    assert "is for the queue of a service, without FILE" in " ".join(result.stderr.replace("│", " ").split())
