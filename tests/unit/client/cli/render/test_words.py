"""Formatting of the facts about a job."""

from __future__ import annotations

import pytest

from tests.support.statuses import (
    HOSTILE,
    NOW,
    TAMED,
    before_now,
)
from training_service._generated import training_service_pb2 as pb
from training_service.client.cli.render import words


def test_the_steps_of_ranks_and_the_slow_ones_are_shown() -> None:
    running = pb.RANK_PHASE_RUNNING
    pace = pb.RankPace(step=40, phase="saving", slowness=1.34)
    pace.slow_since.GetCurrentTime()
    group = [
        pb.RankStatus(rank=0, role="master", phase=running, pace=pb.RankPace(step=41, phase="training")),
        pb.RankStatus(rank=1, role="worker", phase=running, pace=pace),
    ]
    assert words.ranks(group) == "master running (step 41), worker 1 running (step 40; saving)"
    assert words.slow_ranks(group).startswith("rank 1 works 1.3 times as long on a step as the median one, ")
    assert words.slow_ranks(group[:1]) == ""


def test_hostile_text_is_escaped_to_one_line() -> None:
    assert words.printable(HOSTILE) == TAMED


def test_several_lines_are_escaped_one_by_one() -> None:
    assert words.printable_lines("a\tb\n\x1b[2Jc\x00") == ["a       b", r"\x1b[2Jc\x00"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m 00s"), (3725, "1h 02m"), (90000, "1d 01h"), (864000, "10d 00h")],
)
def test_durations_have_their_two_largest_units(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


def test_a_negative_duration_is_zero() -> None:
    assert words.seconds_between(before_now(seconds=-30), NOW) == 0


def test_the_names_of_statuses_are_those_of_the_api() -> None:
    assert [words.status_word(value) for value in pb.TrainingStatus.values()] == [
        "queuing",
        "launch",
        "running",
        "succeed",
        "failure",
        "cancelled",
    ]


@pytest.mark.parametrize(
    ("progress", "fraction"),
    [
        (pb.Progress(step=1, total_steps=4), 0.25),
        (pb.Progress(epoch=1, total_epochs=2), 0.5),
        (pb.Progress(step=9, total_steps=4), 1.0),
        (pb.Progress(step=-1, total_steps=4), 0.0),
        (pb.Progress(step=7), None),
    ],
)
def test_the_fraction_done_is_known_only_with_a_total(progress: pb.Progress, fraction: float | None) -> None:
    assert words.fraction_done(progress) == fraction


def test_metrics_may_be_nan_or_infinite() -> None:
    progress = pb.Progress(metrics={"loss": float("nan"), "norm": float("inf")})
    assert words.metrics(progress) == "loss NaN, norm infinity"


def test_a_metric_that_is_not_finite_is_named_with_its_first_step() -> None:
    bad = [
        pb.NonfiniteMetric(metric="loss", value=float("nan"), step=5, rank=0),
        pb.NonfiniteMetric(metric="norm", value=float("inf"), step=2, rank=3),
    ]
    progress = pb.Progress(metrics={"loss": float("nan"), "norm": 0.5}, nonfinite=bad)
    assert words.nonfinite(progress) == "loss is NaN since step 5, norm was infinity at step 2 (rank 3)"


def test_only_the_first_of_many_metrics_are_shown() -> None:
    progress = pb.Progress(metrics={f"m{number:03}": number for number in range(100)})
    assert words.metrics(progress).endswith("m007 7, 92 more")


def test_a_large_group_is_counted_and_its_failures_named() -> None:
    group = [pb.RankStatus(rank=n, role="worker", phase=pb.RANK_PHASE_RUNNING) for n in range(64)]
    group[5].phase, group[5].exit_code = pb.RANK_PHASE_FAILED, 1
    assert words.ranks(group) == "63 running, 1 failed; worker 5 failed (exit code 1)"


def test_a_large_group_shows_the_number_of_restarts() -> None:
    group = [pb.RankStatus(rank=n, role="worker", phase=pb.RANK_PHASE_RUNNING) for n in range(20)]
    group[3].restarts, group[4].restarts = 1, 2
    assert words.ranks(group) == "20 running, restarted 3 times"
