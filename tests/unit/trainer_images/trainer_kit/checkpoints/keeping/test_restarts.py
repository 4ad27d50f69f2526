"""The content and time of checkpoints, and the state after a restart."""

import random
import signal
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from trainer_kit import checkpoints
from trainer_kit.checkpoints.pace import Pace
from trainer_kit.checkpoints.settings import Settings
from trainer_kit.errors import ParameterError, UnfitError
from trainer_kit.termination import Terminated

from tests.support.trainers.checkpoints import ALONE, ALONE_IS_FINE, Start, files_below

pytestmark = ALONE_IS_FINE


def test_a_restart_restores_weights_steps_and_values_of_the_last_checkpoint(start: Start) -> None:
    with start.attempt() as first:
        first.run.values["best"] = {"loss": 0.5}
        first.steps(3)
        saved = first.weights
    with start.attempt(2) as second:
        assert second.weights == saved
        assert second.run.steps == 3
        assert second.run.values == {"best": {"loss": 0.5}}


def test_a_restart_continues_bit_by_bit(start: Start) -> None:
    with start.attempt(CHECKPOINT_EVERY_STEPS="3") as unbroken:
        unbroken.steps(5)
    assert start.published_steps == [3]
    with start.attempt(2) as resumed:
        resumed.steps(2)
    assert resumed.weights == unbroken.weights


def test_every_random_generator_is_restored(start: Start) -> None:
    with start.attempt() as first:
        first.steps(1)
    expected = [random.random(), float(np.random.rand()), float(torch.rand(()))]
    for generator in (random.seed, np.random.seed, torch.manual_seed):
        generator(99)
    with start.attempt(2):
        assert [random.random(), float(np.random.rand()), float(torch.rand(()))] == expected


def test_only_the_newest_checkpoints_are_kept(start: Start) -> None:
    for attempt in range(1, 6):
        with start.attempt(attempt, CHECKPOINT_KEEP="2") as training:
            training.steps(1)
    assert start.published_steps == [5, 4]
    assert [checkpoint.run.attempt for checkpoint in start.published] == [5, 4]


def test_the_folder_has_only_the_kept_checkpoints(start: Start, folder: Path) -> None:
    for attempt in range(1, 4):
        with start.attempt(attempt, CHECKPOINT_KEEP="1") as training:
            training.steps(1)
    [kept] = start.published
    names = {path.relative_to(folder).parts[0] for path in files_below(folder)}
    assert names == {str(kept), kept.manifest, kept.run.fence}


def test_without_a_folder_only_steps_are_counted(start: Start, folder: Path) -> None:
    with start.attempt(CHECKPOINT_URI="") as training:
        training.steps(3)
    assert training.run.steps == 3
    assert not folder.exists()


def test_sigterm_saves_after_the_step_and_ends(start: Start) -> None:
    never = {"CHECKPOINT_EVERY_STEPS": "1000"}
    with pytest.raises(Terminated) as terminated, start.attempt(**never) as training:  # noqa: PT012
        training.steps(2)
        signal.raise_signal(signal.SIGTERM)
        training.steps(1)
        pytest.fail("the step after SIGTERM does not return")
    assert terminated.value.exit_code == 143
    assert start.published_steps == [3]


def test_sigterm_after_the_last_step_saves(start: Start) -> None:
    never = {"CHECKPOINT_EVERY_STEPS": "1000"}
    with pytest.raises(Terminated), start.attempt(**never) as training:  # noqa: PT012
        training.steps(2)
        signal.raise_signal(signal.SIGTERM)
    assert start.published_steps == [2]


def test_a_model_of_another_shape_is_refused_and_nothing_is_lost(start: Start) -> None:
    with start.attempt() as training:
        training.steps(1)
    start.outputs = 5
    with pytest.raises(UnfitError, match="does not match this training"), start.attempt(2):
        pytest.fail("it must not train from what is not there")
    assert start.published_steps == [1]


def test_a_model_without_an_optimizer_is_saved(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECKPOINT_URI", start.uri)
    monkeypatch.setenv("CHECKPOINT_EVERY_STEPS", "1")
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    with checkpoints.kept(ALONE, model, []) as run:
        run.step()
    with checkpoints.kept(ALONE, other, []):
        assert torch.equal(other.weight, model.weight)


def test_work_can_be_completed_before_each_save(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECKPOINT_URI", start.uri)
    monkeypatch.setenv("CHECKPOINT_EVERY_STEPS", "2")
    monkeypatch.setenv("CHECKPOINT_EVERY_SECONDS", "100000")  # the default of 60 s may pass
    model = nn.Linear(2, 2)
    completed: list[int] = []

    def complete() -> None:
        completed.append(run.steps)
        with torch.no_grad():
            model.weight.fill_(run.steps)

    with checkpoints.kept(ALONE, model, [], before_save=complete) as run:
        for _ in range(5):
            run.step()
            run.wait()
    assert completed == [2, 4]
    model.weight.detach().zero_()
    with checkpoints.kept(ALONE, model, []):
        assert torch.equal(model.weight, torch.full((2, 2), 4.0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("CHECKPOINT_EVERY_STEPS", value) for value in ("-1", "x")),
        *(("CHECKPOINT_EVERY_SECONDS", value) for value in ("0", "nan", "x")),
        *(("CHECKPOINT_KEEP", value) for value in ("0", "")),
        ("CHECKPOINT_GRACE_SECONDS", "0"),
    ],
)
def test_an_invalid_setting_is_named(start: Start, name: str, value: str) -> None:
    with pytest.raises(ParameterError, match=name), start.attempt(**{name: value}):
        pytest.fail("it must not begin")


def test_setting_the_clock_changes_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = count(2_000_000_000, -86_400)
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    period = {"CHECKPOINT_EVERY_STEPS": "0", "CHECKPOINT_EVERY_SECONDS": "0.05"}
    began = time.monotonic()
    with start.attempt(**period) as training:
        while len(start.published) < 3:
            training.steps(1)
    assert time.monotonic() - began >= 3 * 0.05
    with start.attempt(2, **period) as resumed:
        assert resumed.run.steps == start.published_steps[0]


def settings(every_steps: int | None, every_seconds: float) -> Settings:
    return Settings("somewhere", 1, every_steps, every_seconds, keep=3, grace=8)


def test_a_checkpoint_is_due_after_each_period() -> None:
    now = [100.0]
    pace = Pace(settings(None, 30), step=0, clock=lambda: now[0])
    due = []
    for step in range(1, 101):
        now[0] += 1
        if pace.is_due(step):
            due.append(step)
            pace.saved(step)
    assert due == [30, 60, 90]


def test_processes_exchange_about_five_times_per_second_with_short_steps() -> None:
    now, talks = [0.0], 0
    pace = Pace(settings(None, 30), step=0, clock=lambda: now[0])
    for step in range(1, 100_001):
        now[0] += 0.0001
        if pace.wants_look(step):
            talks += 1
            pace.looked(step, pace.seconds_per_step(step))
    assert 50 <= talks <= 70


def test_processes_exchange_after_every_long_step() -> None:
    now = [0.0]
    pace = Pace(settings(None, 30), step=0, clock=lambda: now[0])
    for step in range(1, 20):
        now[0] += 3
        assert pace.wants_look(step)
        pace.looked(step, pace.seconds_per_step(step))


def test_processes_exchange_when_a_number_of_steps_is_due() -> None:
    pace = Pace(settings(10, 1000), step=0, clock=lambda: 0.0)
    due = []
    for step in range(1, 51):
        if pace.wants_look(step):
            if pace.is_due(step):
                due.append(step)
                pace.saved(step)
            pace.looked(step, 0.000001)
    assert due == [10, 20, 30, 40, 50]
