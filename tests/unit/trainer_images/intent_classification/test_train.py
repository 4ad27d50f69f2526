"""Complete training runs: real processes on the real questions."""

import json
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from intent_classification.batches import Encoded
from intent_classification.model import BagOfEmbeddings
from intent_classification.splits import Split
from intent_classification.train import Parameters, fit
from trainer_kit.errors import TrainingError
from trainer_kit.group import Group
from trainer_kit.progress import Reporter
from trainer_kit.report_sinks import PROGRESS, NullSink

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.frameworks import KILLED
from tests.support.trainers.launcher import TRAIN, Launcher, Trained, end_of, train

SIZES = (1, 2, 3)
NOISE = 0.04
"""Two standard deviations of the difference between two accuracies of 0.87 on 504 questions."""


@pytest.fixture
def launcher(tmp_path: Path, forks: Sequence[ForkServer]) -> Iterator[Launcher]:
    with Launcher(tmp_path, forks=forks) as launcher:
        yield launcher


def manifest_of(model: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((model / "manifest.json").read_text())
    return manifest


@pytest.mark.parametrize("size", SIZES)
def test_a_group_of_any_size_learns_to_classify(trained: Callable[[int], Trained], size: int) -> None:
    accuracy = manifest_of(trained(size).model)["metrics"]["test_accuracy"]
    assert accuracy >= 0.80
    assert f"test accuracy {accuracy:.3f} on 504 questions" in trained(size).ends[0].stdout


def test_groups_of_all_sizes_learn_equally_well(trained: Callable[[int], Trained]) -> None:
    accuracies = [manifest_of(trained(size).model)["metrics"]["test_accuracy"] for size in SIZES]
    assert all(abs(one - other) <= NOISE for one, other in combinations(accuracies, 2))


def test_one_process_with_batch_64_and_four_with_batch_16_learn_the_same_to_rounding(
    launcher: Launcher, questions_uri: str, tmp_path: Path
) -> None:
    # With LR 4, rounding errors of another summation order grow tenfold every few steps. With LR 0.5 they
    # do not grow, so any other difference is visible.
    one, four = tmp_path / "one", tmp_path / "four"
    train(launcher, 1, questions_uri, one, BATCH_SIZE="64", LR="0.5", EPOCHS="2")
    train(launcher, 4, questions_uri, four, BATCH_SIZE="16", LR="0.5", EPOCHS="2")

    losses = [[epoch["loss"] for epoch in manifest_of(model)["epochs"]] for model in (one, four)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    weights, others = (torch.load(model / "model.pt", weights_only=True) for model in (one, four))
    assert weights.keys() == others.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, others[name], rtol=0, atol=1e-5)


def test_only_the_same_seed_gives_the_same_model(
    launcher: Launcher, questions_uri: str, tmp_path: Path
) -> None:
    seeds = {"first": "5", "again": "5", "other": "6"}
    processes = [
        launcher.start(
            *TRAIN, TRAINING_DATA_URI=questions_uri, MODEL_URI=str(tmp_path / name), EPOCHS="1", SEED=seed
        )
        for name, seed in seeds.items()
    ]
    assert [end_of(process).code for process in processes] == [0, 0, 0]
    first, again, other = (manifest_of(tmp_path / name)["files"]["model.pt"] for name in seeds)
    assert first == again
    assert first != other


def test_a_group_saves_a_model_like_one_process(trained: Callable[[int], Trained]) -> None:
    alone, grouped = (torch.load(trained(size).model / "model.pt", weights_only=True) for size in (1, 3))
    assert {name: tensor.shape for name, tensor in grouped.items()} == {
        name: tensor.shape for name, tensor in alone.items()
    }
    assert not [name for name in grouped if name.startswith("module.")]


def test_a_group_that_is_killed_resumes_and_makes_the_identical_model(
    launcher: Launcher, questions_uri: str, tmp_path: Path
) -> None:
    unbroken, resumed = tmp_path / "unbroken", tmp_path / "resumed"
    train(launcher, 2, questions_uri, unbroken, EPOCHS="3")
    kept = {"EPOCHS": "3", "CHECKPOINT_URI": str(tmp_path / "kept"), "CHECKPOINT_EVERY_STEPS": "5"}
    places = {"TRAINING_DATA_URI": questions_uri, "MODEL_URI": str(resumed)}
    killed = {"KILL_RANK": "1", "KILL_AT": "92"}
    master, worker = launcher.start_group(2, KILLED, TRAIN[1], **places, **kept, **killed)
    assert end_of(worker).code == -signal.SIGKILL
    end = end_of(master)
    assert end.code != 0
    assert "epoch 2 of 3" in end.stdout

    [end, _] = train(launcher, 2, questions_uri, resumed, JOB_ATTEMPT="2", **kept)
    assert "resuming from step 90," in end.stdout
    assert manifest_of(resumed)["epochs"] == manifest_of(unbroken)["epochs"]
    assert manifest_of(resumed)["files"] == manifest_of(unbroken)["files"]


def test_the_manifest_has_the_origin_of_the_model(trained: Callable[[int], Trained]) -> None:
    manifest = manifest_of(trained(3).model)
    assert manifest["job_id"] == "7"
    assert manifest["attempt"] == 2
    assert manifest["algorithm"] == "intent-classification"
    assert manifest["model_name"] == "questions"
    assert (manifest["dataset_id"], manifest["dataset_version_hash"]) == ("1", "abc")
    assert manifest["parameters"] == {"LR": 4.0, "EPOCHS": 10, "BATCH_SIZE": 64, "FC_SIZE": 128, "SEED": 1}
    assert manifest["world_size"] == 3
    assert manifest["torch_version"] == str(torch.__version__)
    assert set(manifest["files"]) == {"model.pt", "vocabulary.json", "labels.json"}


def test_the_last_progress_report_has_all_steps_and_the_accuracy(
    trained: Callable[[int], Trained],
) -> None:
    lines = [line for line in trained(3).ends[0].stdout.splitlines() if line.startswith(PROGRESS)]
    first, last = (json.loads(line.removeprefix(PROGRESS)) for line in (lines[0], lines[-1]))
    assert (first["step"], first["epoch"]) == (1, 1)
    assert (last["step"], last["epoch"], last["total_epochs"]) == (last["total_steps"], 10, 10)
    assert last["metrics"]["test_accuracy"] == manifest_of(trained(3).model)["metrics"]["test_accuracy"]


def test_only_the_master_prints(trained: Callable[[int], Trained]) -> None:
    master, *workers = trained(3).ends
    assert "epoch 1 of 10: loss" in master.stdout
    assert [worker.stdout for worker in workers] == ["", ""]
    assert {end.stderr for end in trained(3).ends} == {""}


def test_a_loss_that_is_not_finite_ends_training_and_suggests_a_smaller_lr() -> None:
    examples = {split: [Encoded([0], 0), Encoded([1], 1)] for split in Split}
    parameters = Parameters(lr=4, epochs=9, batch_size=2, fc_size=4, seed=1)
    model = BagOfEmbeddings(terms=2, fc_size=4, classes=2)
    torch.nn.init.constant_(model.output.bias, math.inf)
    with pytest.raises(TrainingError, match=r"^the loss is not finite in epoch 1: try a smaller LR$"):
        fit(model, examples, parameters, Group(0, 1, torch.device("cpu")), Reporter(NullSink()))
