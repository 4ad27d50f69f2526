"""Pictures of timelines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from tests.support.timelines import Order, gpipe, pipeline
from tests.support.trainctl import HOSTILE_NAME
from training_service.client.cli.render import timelines
from training_service.client.timelines import MOST_PASSES, Timeline, read

if TYPE_CHECKING:
    from pathlib import Path


def of(content: dict[str, Any]) -> Timeline:
    return read([json.dumps(content).encode()])


def interleaved() -> dict[str, Any]:
    orders: list[Order] = [
        [(kind, stage, number) for kind, stage in stages for number in range(2)]
        for stages in (
            [("forward", 0), ("forward", 2), ("backward", 2), ("backward", 0)],
            [("forward", 1), ("forward", 3), ("backward", 3), ("backward", 1)],
        )
    ]
    return pipeline(orders, "interleaved", 4, 2, {"forward": 0.01, "backward": 0.02})


def test_a_terminal_shows_a_row_for_each_rank() -> None:
    assert timelines.drawn(of(gpipe(2, 2, forward=0.01, backward=0.02)), "job 7", 54).splitlines() == [
        "job 7",
        "rank 0 0───1───············0═══════1═══════ idle 33.3%",
        "rank 1 ····0───1───0═══════1═══════········ idle 33.3%",
        "0── forward pass of micro-batch 0, 0══ its backward pass, · idle; 90.0 ms by CPU time",
        "gpipe: idle 33.3% measured, 33.3% by formula ((k-1)/(m+k-1), k = 2 ranks, m = 2 micro-batches)",
    ]


def test_a_pass_without_room_for_its_number_has_none() -> None:
    _, first, *_ = timelines.drawn(of(gpipe(2, 12)), "job 7", 10).splitlines()
    assert first.startswith("rank 0 ")
    assert not any(sign.isdigit() for sign in first.removeprefix("rank 0 ").partition(" ")[0])


def test_the_summary_names_the_stages_of_a_rank() -> None:
    assert timelines.summary(of(interleaved())) == (
        "interleaved: idle 20.0% measured, 20.0% by formula "
        "((k-1)/(vm+k-1), k = 2 ranks, v = 2 stages of each, m = 2 micro-batches)"
    )


def test_text_of_a_job_is_escaped() -> None:
    timeline = of({**gpipe(2, 2), "schedule": HOSTILE_NAME})
    for text in (timelines.summary(timeline), timelines.drawn(timeline, "job 7", 80)):
        assert "\x1b" not in text


def test_a_line_has_a_pass() -> None:
    last = of(gpipe(2, 2)).boxes[-1]
    assert timelines.line(7, last).split("\t") == [
        *("7", "1", "backward", "1", "1"),
        *("5.000000", "7.000000"),
    ]


@pytest.mark.parametrize("content", [gpipe(4, 4), interleaved(), {**gpipe(2, 2), "schedule": HOSTILE_NAME}])
def test_an_image_has_a_box_for_each_pass(content: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "timeline.svg"
    timelines.save(of(content), f"job 7 ({HOSTILE_NAME})", file)
    groups = [group.get("id", "") for group in ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}g")]
    assert any(group.startswith("FillBetween") or "Collection" in group for group in groups)


def test_the_largest_timeline_is_drawn(tmp_path: Path) -> None:
    timeline = of(gpipe(100, MOST_PASSES // 200))
    timelines.save(timeline, "job 7", tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert len(timelines.drawn(timeline, "job 7", 80).splitlines()) == 103
