"""The CPU time of the passes of a pipeline, without processes. test_train.py has real ones."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from language_model import pass_times, theory
from language_model.choices import Schedule
from language_model.layout import Layout
from language_model.pass_times import MOST_PASSES, Pass, PassTimes

from training_service.client.timelines import FILE, read

PIPELINE = Layout(world_size=2, pipeline=2, micro_batches=2, schedule=Schedule.GPIPE)
Clock = Callable[[float], None]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a function that lets CPU time pass."""
    now = 0.0

    def spend(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("language_model.pass_times.time.thread_time", lambda: now)
    return spend


def test_a_pass_takes_its_least_time_in_all_steps(work: Clock) -> None:
    times = PassTimes(PIPELINE)
    for first, second in ((5.0, 2.0), (3.0, 7.0), (4.0, 4.0)):
        with times.step():
            with times.measuring(True, 0, 0):
                work(first)
            work(100.0)  # between passes
            with times.measuring(True, 0, 1):
                work(second)
    assert times.least() == {Pass(True, 0, 0): 3.0, Pass(True, 0, 1): 2.0}
    assert times.steps == 3


def test_the_order_is_that_of_the_last_step(work: Clock) -> None:
    times = PassTimes(PIPELINE)
    for order in ((0, 1), (1, 0)):
        with times.step():
            for micro_batch in order:
                with times.measuring(False, 0, micro_batch):
                    work(1.0)
    assert list(times.least()) == [Pass(False, 0, 1), Pass(False, 0, 0)]


def test_the_time_of_the_loss_is_part_of_the_forward_pass_before_it(work: Clock) -> None:
    times = PassTimes(PIPELINE)

    def slow(*_: Any) -> torch.Tensor:
        work(0.5)
        return torch.zeros(())

    loss = times.including(slow)
    loss()  # outside of a step
    with times.step():
        loss()  # before any pass
        with times.measuring(True, 1, 0):
            work(2.0)
        loss()
    assert times.least() == {Pass(True, 1, 0): 2.5}


def test_passes_outside_of_steps_are_not_measured(work: Clock) -> None:
    times = PassTimes(PIPELINE)
    with times.measuring(True, 0, 0):
        work(1.0)
    assert (times.least(), times.steps) == ({}, 0)


def test_a_step_that_fails_is_not_measured(work: Clock) -> None:
    times = PassTimes(PIPELINE)
    with pytest.raises(ZeroDivisionError), times.step(), times.measuring(True, 0, 0):
        work(1 / 0)
    assert (times.least(), times.steps) == ({}, 0)


def test_micro_batches_of_several_steps_have_the_least_time_of_their_place(
    work: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pass_times, "is_flushed", lambda _: False)
    monkeypatch.setattr(pass_times, "UNFLUSHED_STEPS", 3)
    times = PassTimes(PIPELINE)
    seconds = itertools.count(10.0, -1.0)
    for step in range(5):
        with times.step():
            for micro_batch in (2 * step, 2 * step + 1):
                with times.measuring(True, 0, micro_batch):
                    work(next(seconds))
    assert times.least() == {Pass(True, 0, number): 2.0 - number % 2 for number in range(4, 10)}


def test_measured_passes_can_be_drawn() -> None:
    ranks = [
        {Pass(is_forward, rank, number): 1.0 for is_forward in (True, False) for number in range(2)}
        for rank in range(2)
    ]
    measured = pass_times.timeline(PIPELINE, ranks, 20)
    timeline = read([json.dumps(measured).encode()])
    assert timeline.idle == pytest.approx(1 / 3)
    assert (measured["schedule"], measured["steps"], measured["flushed"]) == ("gpipe", 20, True)
    assert pass_times.FILE == FILE


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 4), (4, 4), (4, 8)])
def test_the_formula_beside_the_picture_is_that_of_the_planner(
    schedule: str, ranks: int, micro_batches: int
) -> None:
    layout = Layout(
        world_size=ranks,
        pipeline=ranks,
        micro_batches=micro_batches,
        schedule=Schedule(schedule),
        layers=8,
        batch_size=16,
    )
    passes = [
        {
            Pass(is_forward, stage, number): 1.0
            for is_forward, stages in ((True, 1), (False, -1))
            for stage in list(range(rank, layout.stages, ranks))[::stages]
            for number in range(micro_batches)
        }
        for rank in range(ranks)
    ]
    measured = pass_times.timeline(layout, passes, 1)
    assert read([json.dumps(measured).encode()]).measured.formula == pytest.approx(theory.bubble(layout))


def test_only_pipelines_of_bounded_size_on_cpus_are_measured() -> None:
    assert pass_times.are_measured(PIPELINE, "cpu")
    assert not pass_times.are_measured(PIPELINE, "cuda")
    assert not pass_times.are_measured(replace(PIPELINE, pipeline=1), "cpu")
    largest = replace(PIPELINE, micro_batches=MOST_PASSES // 4, batch_size=MOST_PASSES // 4)
    assert pass_times.are_measured(largest, "cpu")
    larger = replace(PIPELINE, micro_batches=MOST_PASSES // 4 + 1, batch_size=MOST_PASSES // 4 + 1)
    assert not pass_times.are_measured(larger, "cpu")
