"""trainctl plot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from tests.support.trainctl import HOSTILE_NAME

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
    result = trainctl("plot", "1", "-m", "nope")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "have not reported such a metric" in result.stderr
    assert "Job 9 doesn't exist" in trainctl("plot", "9").stderr
