"""trainctl plot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from tests.support.timelines import gpipe
from tests.support.trainctl import HOSTILE_NAME
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


def test_plot_prints_one_line_per_point_in_a_pipe(trained: ServerInThread, trainctl: Trainctl) -> None:
    result = trainctl("plot", "1", "2", "-m", "accuracy")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{job}\taccuracy\t{step}\t{value}"
        for job in (1, 2)
        for step, value in ((1, 0.1), (2, 0.5), (3, 0.9))
    ]


def test_plot_prints_json(trained: ServerInThread, trainctl: Trainctl) -> None:
    printed = trainctl("plot", "1", "--json").stdout.splitlines()
    assert [json.loads(line)["name"] for line in printed] == ["accuracy", f"loss {HOSTILE_NAME}"]


def test_plot_draws_on_a_terminal(trained: ServerInThread, trainctl: Trainctl) -> None:
    picture = trainctl.on_terminal("plot", "1", "2").stdout
    assert "accuracy" in picture
    assert "job 1" in picture
    assert "job 2" in picture
    assert "\x1b[2J" not in picture


@pytest.mark.parametrize("values", [(0.5, "nan", 0.25, "inf", "-inf"), ("nan", "nan")])
def test_plot_marks_values_that_are_not_finite(
    training: ServerInThread, trainctl: Trainctl, tmp_path: Path, values: tuple[float | str, ...]
) -> None:
    training.set_job(1, status=pb.succeed, metadata=pb.TrainingJobMetadata(name="a"))
    points = [pb.MetricPoint(step=step, value=float(value)) for step, value in enumerate(values, start=1)]
    training.service.series[1] = [pb.MetricSeries(job_id=1, name="loss", points=points)]
    piped = [line.split("\t")[3] for line in trainctl("plot", "1").stdout.splitlines()]
    assert piped == [str(float(value)) for value in values]
    picture = trainctl.on_terminal("plot", "1").stdout
    assert "NaN or infinite since step" in picture
    assert trainctl("plot", "1", "-o", str(tmp_path / "curves.svg")).exit_code == 0
    printed = json.loads(trainctl("plot", "1", "--json").stdout, parse_constant=pytest.fail)
    assert "NaN" in [point["value"] for point in printed["points"]]


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_plot_writes_an_image(trained: ServerInThread, trainctl: Trainctl, tmp_path: Path, kind: str) -> None:
    picture = tmp_path / f"curves.{kind}"
    result = trainctl("plot", "1", "2", "-o", str(picture))
    assert (result.exit_code, result.stderr) == (0, f"trainctl: wrote {picture}\n")
    if kind == "png":
        assert picture.read_bytes().startswith(b"\x89PNG")
    else:
        assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_plot_reports_what_it_cannot_draw(
    trained: ServerInThread, trainctl: Trainctl, tmp_path: Path
) -> None:
    assert "must end in .png" in trainctl("plot", "1", "-o", str(tmp_path / "x.bmp")).stderr
    nowhere = trainctl("plot", "1", "-o", str(tmp_path / "no" / "x.png"))
    assert nowhere.exit_code == 2
    assert f"there is no folder '{tmp_path / 'no'}'" in nowhere.stderr.replace("\n", " ")
    (tmp_path / "folder.png").mkdir()
    assert "cannot write" in trainctl("plot", "1", "-o", str(tmp_path / "folder.png")).stderr
    result = trainctl("plot", "1", "-m", "nope")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the jobs have reported accuracy, loss" in result.stderr
    assert "Job 9 doesn't exist" in trainctl("plot", "9").stderr


@pytest.fixture
def pipelined(trained: ServerInThread) -> ServerInThread:
    trained.service.files[1]["timeline.json"] = json.dumps(gpipe(2, 2)).encode()
    return trained


def test_a_timeline_is_a_line_for_each_pass_in_a_pipe(pipelined: ServerInThread, trainctl: Trainctl) -> None:
    result = trainctl("plot", "1", "--timeline")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 8
    assert lines[0].split("\t") == ["1", "0", "forward", "0", "0", "0.000000", "1.000000"]
    assert result.stderr.startswith("trainctl: gpipe: idle 33.3% measured, 33.3% by formula")


def test_a_timeline_is_an_object_in_json(pipelined: ServerInThread, trainctl: Trainctl) -> None:
    [line] = trainctl("plot", "1", "--timeline", "--json").stdout.splitlines()
    printed = json.loads(line)
    assert (printed["job_id"], printed["schedule"], len(printed["passes"])) == (1, "gpipe", 8)


def test_a_timeline_is_drawn_on_a_terminal(pipelined: ServerInThread, trainctl: Trainctl) -> None:
    picture = trainctl.on_terminal("plot", "1", "--timeline").stdout
    assert "rank 1 ····" in picture
    assert "idle 33.3% measured" in picture
    assert "\x1b[2J" not in picture


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_timeline_is_written_as_an_image(
    pipelined: ServerInThread, trainctl: Trainctl, tmp_path: Path, kind: str
) -> None:
    picture = tmp_path / f"timeline.{kind}"
    result = trainctl("plot", "1", "--timeline", "-o", str(picture))
    assert result.exit_code == 0
    assert result.stderr.splitlines()[0] == f"trainctl: wrote {picture}"
    assert "idle 33.3% measured" in result.stderr
    assert picture.stat().st_size > 1000


def test_a_timeline_that_cannot_be_drawn_is_reported(
    pipelined: ServerInThread, trainctl: Trainctl, tmp_path: Path
) -> None:
    assert "job 2 has no timeline.json" in trainctl("plot", "2", "--timeline").stderr
    assert "one job, without --metric" in trainctl("plot", "1", "2", "--timeline").stderr
    assert "one job, without --metric" in trainctl("plot", "1", "--timeline", "-m", "loss").stderr
    assert "must end in .png" in trainctl("plot", "1", "--timeline", "-o", str(tmp_path / "x.bmp")).stderr
    pipelined.service.files[1]["timeline.json"] = b'{"schedule": "\\u001b[2J"}'
    result = trainctl("plot", "1", "--timeline")
    assert result.exit_code == 8
    assert result.stderr == (
        "trainctl: timeline.json of job 1 is not a timeline: ranks: a value is required\n"
    )


def test_plot_smooths_every_form(trained: ServerInThread, trainctl: Trainctl, tmp_path: Path) -> None:
    printed = trainctl("plot", "1", "-m", "accuracy", "--smooth", "0.5").stdout.splitlines()
    values = [float(line.split("\t")[3]) for line in printed]
    assert values == pytest.approx([0.1, 0.55 / 1.5, 1.175 / 1.75])
    drawn = [trainctl.on_terminal("plot", "1", "--smooth", weight).stdout for weight in ("0", "0.9")]
    assert drawn[0] != drawn[1]
    assert trainctl("plot", "1", "--smooth", "1").exit_code == 2
    assert trainctl("plot", "1", "--timeline", "--smooth", "0.5").exit_code == 2
