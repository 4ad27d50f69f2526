"""A training run without PyTorch's checkpoints resumes with its arrays, position and random numbers."""

import hashlib
import json
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainer_kit import progress
from trainer_kit.checkpoints import Kept, arrays, groups, tree
from trainer_kit.checkpoints.folder import CheckpointFolder
from trainer_kit.errors import SupersededError, UnfitError, UntrustedTypeError
from trainer_kit.termination import Terminated

from tests.support.trainers.checkpoints import manifest_of, parts_of


class Training:
    """A training run that depends on its weights, its steps, and every kind of randomness."""

    def __init__(self, run: Kept, state: dict[str, Any]) -> None:
        self.run = run
        self.state = state

    def steps(self, count: int) -> list[float]:
        """Do this number of steps, and return the sum of the weights after each."""
        seen = []
        for _ in range(count):
            self.state["weights"] = self.state["weights"] * 0.9 + np.random.rand(4) * random.random()
            seen.append(float(self.state["weights"].sum()))
            self.run.step()
            self.run.wait()
        return seen


class Start:
    """Starts attempts of one job."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch = monkeypatch
        self.folder = folder
        self.own: dict[str, Any] = {"losses": []}

    @contextmanager
    def attempt(self, attempt: int = 1, /, every: int = 1, keep: int = 3, **more: Any) -> Iterator[Training]:
        self._monkeypatch.setenv("CHECKPOINT_URI", str(self.folder))
        self._monkeypatch.setenv("JOB_ATTEMPT", str(attempt))
        self._monkeypatch.setenv("CHECKPOINT_EVERY_STEPS", str(every))
        # On a busy machine, the default of 60 s may pass.
        self._monkeypatch.setenv("CHECKPOINT_EVERY_SECONDS", "100000")
        self._monkeypatch.setenv("CHECKPOINT_KEEP", str(keep))
        random.seed(1)
        np.random.seed(1)
        state = {"weights": np.zeros(4), **more}
        with arrays.kept(groups.alone(), state, self.own) as run:
            yield Training(run, state)

    @property
    def published_steps(self) -> list[int]:
        return [checkpoint.step for checkpoint in CheckpointFolder(str(self.folder)).look().published]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Start:
    return Start(monkeypatch, tmp_path / "checkpoints")


def test_a_resumed_training_continues_as_an_unbroken_one(start: Start, tmp_path: Path) -> None:
    with start.attempt(every=100) as unbroken:
        expected = unbroken.steps(7)
    start.folder = tmp_path / "broken"
    with start.attempt(every=2) as first:
        first.run.values["best"] = {"loss": 0.5}
        assert first.steps(5) == expected[:5]
    with start.attempt(2) as second:
        assert second.run.steps == 4
        assert second.run.values == {"best": {"loss": 0.5}}
        assert second.steps(3) == expected[4:]


def test_values_of_the_process_are_restored(start: Start) -> None:
    with start.attempt() as first:
        start.own["losses"].append(0.5)
        first.steps(1)
    start.own = {"losses": []}
    with start.attempt(2):
        assert start.own == {"losses": [0.5]}


def test_an_older_attempt_that_still_lives_cannot_save(start: Start) -> None:
    with pytest.raises(SupersededError), start.attempt() as older:  # noqa: PT012
        older.steps(2)
        with start.attempt(2) as newer:
            newer.steps(1)
            older.steps(2)
    folder = CheckpointFolder(str(start.folder)).look()
    assert [(each.run.attempt, each.step) for each in folder.published] == [(2, 3), (1, 2), (1, 1)]


def test_only_the_newest_checkpoints_are_kept(start: Start) -> None:
    with start.attempt(keep=2) as training:
        training.steps(5)
    assert start.published_steps == [5, 4]
    assert len([each for each in start.folder.iterdir() if each.is_dir()]) == 2


@pytest.mark.parametrize("part", [arrays.VALUES, arrays.ARRAYS])
def test_a_damaged_checkpoint_is_skipped(start: Start, caplog: pytest.LogCaptureFixture, part: str) -> None:
    with start.attempt() as first:
        first.steps(3)
    path = parts_of(start.folder, 3) / part
    path.write_bytes(path.read_bytes()[:-1])
    with start.attempt(2) as second:
        assert second.run.steps == 2
    assert "step-000000000003, which is damaged" in caplog.text


def test_a_checkpoint_with_other_parts_is_skipped(start: Start) -> None:
    with start.attempt() as first:
        first.steps(2)
    manifest = manifest_of(start.folder, 2)
    (parts_of(start.folder, 2) / arrays.VALUES).rename(parts_of(start.folder, 2) / "model")
    manifest.write_text(manifest.read_text().replace(arrays.VALUES, "model"))
    with start.attempt(2) as second:
        assert second.run.steps == 1


@pytest.mark.parametrize(
    "content",
    [
        *(3, {"kept": {}, "state": {}, "of_each": []}, {"kept": 1, "state": 2, "of_each": 3}),
        {"kept": {"steps": "x", "values": {}}, "state": {}, "of_each": []},
        {"kept": {"steps": -1, "values": {}}, "state": {}, "of_each": []},
        {"kept": {"steps": 1, "values": {}}, "state": {}, "of_each": [{"own": {}}]},
    ],
    ids=str,
)
def test_a_checkpoint_with_the_values_of_something_else_is_skipped(start: Start, content: object) -> None:
    with start.attempt(1) as training:
        training.steps(2)
    values, _ = tree.encode(content)
    replace_values(start.folder, 2, json.dumps({"values": values, "arrays": 0}).encode())
    with start.attempt(2) as training:
        assert training.run.steps == 1


def test_values_that_are_nested_too_deeply_are_skipped(start: Start) -> None:
    with start.attempt(1) as training:
        training.steps(2)
    replace_values(start.folder, 2, b'{"values":' + b"[" * 100_000)
    with start.attempt(2) as training:
        assert training.run.steps == 1


def replace_values(folder: Path, step: int, content: bytes) -> None:
    """Write other values into a checkpoint, with a manifest that fits."""
    (parts_of(folder, step) / arrays.VALUES).write_bytes(content)
    manifest = json.loads(manifest_of(folder, step).read_text())
    manifest["parts"][arrays.VALUES] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest_of(folder, step).write_text(json.dumps(manifest))


def test_sigterm_saves_after_the_step_and_ends(start: Start) -> None:
    with pytest.raises(Terminated), start.attempt(every=1000) as training:  # noqa: PT012
        training.steps(2)
        signal.raise_signal(signal.SIGTERM)
        training.steps(1)
    assert start.published_steps == [3]


def test_another_state_is_refused_and_nothing_is_lost(start: Start) -> None:
    with start.attempt() as training:
        training.steps(1)
    with pytest.raises(UnfitError, match="it has weights, and the training has momentum, weights"):  # noqa: SIM117
        with start.attempt(2, momentum=np.zeros(4)):
            pytest.fail("it must not train")
    assert start.published_steps == [1]


def test_a_state_that_cannot_be_loaded_again_is_refused_when_it_is_saved(start: Start) -> None:
    with pytest.raises(UntrustedTypeError, match=r"state\.seen is of type builtins\.set"):  # noqa: SIM117
        with start.attempt(seen=set()) as training:
            training.steps(1)
    assert start.published_steps == []


def test_the_last_checkpoint_is_reported(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    with start.attempt() as training:
        training.steps(2)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::artifact:: ")]
    assert len(lines) == 2
    uri = parts_of(start.folder, 2)
    size = sum(path.stat().st_size for path in uri.iterdir())
    assert lines[1] == (
        f'::artifact:: {{"name": "checkpoint", "uri": "{uri}", "kind": "checkpoint", "size": {size}}}'
    )
    assert progress._in_use == []


def test_without_a_folder_steps_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHECKPOINT_URI", raising=False)
    state = {"weights": object()}
    with arrays.kept(groups.alone(), state) as run:
        run.step()
    assert run.steps == 1
