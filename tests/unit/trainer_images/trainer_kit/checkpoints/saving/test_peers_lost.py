"""A checkpoint that is being published survives the death of a peer."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.trainers.checkpoint_groups import Job, end_of, losses
from tests.support.trainers.checkpoints import Start
from tests.support.trainers.launcher import Launcher

ROUNDS = 3


def wait_until_published(folder: Path, before: set[str], process: subprocess.Popen[str]) -> None:
    """Return as soon as there is a manifest besides those `before`."""
    while process.poll() is None:
        if set(manifests(folder)) - before:
            return
    pytest.fail("the training ended and saved nothing")


def manifests(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith(".json")]  # noqa: PTH208  # for speed
    except FileNotFoundError:
        return []


def test_a_published_checkpoint_survives_a_peer_that_dies_before_it_is_notified(
    launcher: Launcher, folder: Path, tmp_path: Path, start: Start
) -> None:
    job = Job(launcher, f"hindered://{folder}")
    hold = tmp_path / "hold"
    os.mkfifo(hold)
    for step in range(3, 3 * ROUNDS + 1, 3):
        group = job.start(2, WAIT="1", CHECKPOINT_KEEP="1", HINDER="hold", HOLD=str(hold))
        assert group[0].stdout
        assert "published\n" in iter(group[0].stdout.readline, "")
        group[1].kill()
        end_of(group[1])
        hold.write_text("go on")
        end = end_of(group[0])
        assert end.code != 0
        assert start.published_steps == [step]
        assert f"checkpoint of step {step} is saved, but a later action failed" in end.stdout
        assert "could not save the checkpoint" not in end.stdout
    ends = job.run(2)
    assert f"resuming from step {step}, saved by attempt {ROUNDS}" in ends[0].stdout
    assert min(losses(ends[0].stdout.splitlines())) == step + 1


def test_a_published_checkpoint_survives_a_peer_that_is_killed_at_that_moment(
    launcher: Launcher, folder: Path, start: Start
) -> None:
    job, reached = Job(launcher, str(folder)), 0
    for _ in range(ROUNDS):
        before = set(manifests(folder))
        group = job.start(2, WAIT="1", CHECKPOINT_KEEP="1", HOLD_AT=str(reached + 4))
        wait_until_published(folder, before, group[0])
        group[1].kill()
        ends = [end_of(process) for process in group]
        assert ends[0].code != 0
        if reached:
            assert f"resuming from step {reached}," in ends[0].stdout
        [now] = start.published_steps
        assert now > reached
        reached = now
    ends = job.run(2)
    assert f"resuming from step {reached}, saved by attempt {ROUNDS}" in ends[0].stdout
