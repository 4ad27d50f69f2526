"""Real groups of a server and workers, compared with one process, with the formulas, and with their ends."""

import json
import re
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hashed_questions.sparse_gradient import SparseBatch
from hashed_questions.train import Parameters, Plan, Questions
from hashed_questions.updates import Push, Update, Weights
from intent_classification import questions
from intent_classification.prepare_data import prepare
from question_features import load_sparse
from trainer_kit.errors import DataError, ParameterError

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import ROOT
from tests.support.trainers.launcher import Ended, Launcher, end_of, first_line_of

BITS, CLASSES, BATCH = 12, 6, 24
SMALL = {"HASH_BITS": str(BITS), "BATCH_SIZE": str(BATCH), "EPOCHS": "2", "L1": "0.001", "LR": "1"}
MODULE = ("-m", "hashed_questions.train")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    labelled = [(question.text, question.coarse) for question in questions.load()[:300]]
    return prepare(labelled, str(tmp_path_factory.mktemp("questions")), "1").uri


def environment(folder: Path, data: str) -> dict[str, str]:
    path = f"{ROOT}:{ROOT / 'trainer_images'}"
    return {**SMALL, "PYTHONPATH": path, "TRAINING_DATA_URI": data, "MODEL_URI": str(folder / "model")}


def trained(
    forks: Sequence[ForkServer], folder: Path, data: str, workers: int, **variables: str
) -> tuple[dict[str, float], np.ndarray, list[Ended]]:
    """Return the last metrics, the weights, and the ends of the processes."""
    folder.mkdir(exist_ok=True)
    with Launcher(folder, forks=forks) as launcher:
        group = launcher.start_group(workers + 1, *MODULE, **environment(folder, data) | variables)
        ends = [end_of(process) for process in group]
    assert [end.code for end in ends] == [0] * (workers + 1), [end.stderr for end in ends]
    last = (re.findall(r"^::progress:: ?(.*)$", ends[0].stdout, re.MULTILINE) or ["{}"])[-1]
    weights = np.zeros((2**BITS, CLASSES), np.float32)
    with np.load(folder / "model/model.npz") as kept:
        weights[kept["keys"]] = kept["rows"]
    return json.loads(last).get("metrics", {}), weights, ends


def plan_of(
    data: str, monkeypatch: pytest.MonkeyPatch, workers: int, **variables: str
) -> tuple[Plan, Questions]:
    for name, value in {**SMALL, **variables}.items():
        monkeypatch.setenv(name, value)
    found = Questions(*load_sparse(data, "train", 2**BITS))
    return Plan(Parameters.from_environment(), len(found.terms), workers), found


def alone(plan: Plan, found: Questions, update: Update) -> np.ndarray:
    """Return the weights that one process learns, without messages, from all examples of each step."""
    weights = Weights(2**BITS, CLASSES, update, lr=1.0, l1=0.001, compensation=0.04)
    every = found.batch(np.arange(plan.questions))
    for epoch in range(1, plan.parameters.epochs + 1):
        weights.begin_epoch()
        anchor = weights.values.copy()
        if update is Update.PROXIMAL_SVRG:
            whole, _ = every.gradient(anchor[every.keys])
            weights.set_whole([Push(every.keys, whole, 0.0)], plan.questions)
        for numbers in plan.of_epoch(epoch):
            batch: SparseBatch = found.batch(numbers.reshape(-1))
            gradient, _ = batch.gradient(weights.values[batch.keys])
            if update is Update.PROXIMAL_SVRG:
                gradient -= batch.gradient(anchor[batch.keys])[0]
            weights.apply([Push(batch.keys, gradient, 0.0)], BATCH)
    return weights.values


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("update", [Update.PROXIMAL, Update.PROXIMAL_SVRG])
def test_without_delay_a_group_learns_what_one_process_learns(
    tmp_path: Path,
    data: str,
    forks: Sequence[ForkServer],
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    update: Update,
) -> None:
    metrics, weights, _ = trained(forks, tmp_path, data, workers, UPDATE=update)
    plan, found = plan_of(data, monkeypatch, workers)
    expected = alone(plan, found, update)
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    assert metrics["nonzero_weights"] == np.count_nonzero(weights)
    assert metrics["objective"] < 1.6 < np.log(CLASSES)


def test_only_touched_keys_are_exchanged(
    tmp_path: Path, data: str, forks: Sequence[ForkServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, _, _ = trained(forks, tmp_path, data, 2)
    plan, found = plan_of(data, monkeypatch, 2)
    touched = [
        len(found.batch(numbers).keys)
        for epoch in (1, 2)
        for of_step in plan.of_epoch(epoch)
        for numbers in of_step
    ]
    assert metrics["exchanged_bytes"] == 2 * sum(touched) * (4 + 4 * CLASSES)
    assert metrics["exchanged_messages"] == 4 * len(touched)
    dense = 2 * len(touched) * 4 * CLASSES * 2**BITS
    assert metrics["exchanged_bytes"] < dense / 10


def test_the_filter_saves_bytes_and_changes_the_objective_little(
    tmp_path: Path, data: str, forks: Sequence[ForkServer]
) -> None:
    strong = {"L1": "0.015", "BATCH_SIZE": "120", "EPOCHS": "6"}  # rare terms do not matter
    exact, _, _ = trained(forks, tmp_path / "exact", data, 2, **strong)
    filtered, _, _ = trained(forks, tmp_path / "filtered", data, 2, **strong, KKT_FILTER="true")
    assert filtered["exchanged_bytes"] < 0.8 * exact["exchanged_bytes"]
    assert filtered["nonzero_weights"] > 10
    assert filtered["objective"] == pytest.approx(exact["objective"], rel=0.02)


@pytest.mark.parametrize("update", Update)
def test_with_delay_it_still_learns(
    tmp_path: Path, data: str, forks: Sequence[ForkServer], update: Update
) -> None:
    metrics, _, _ = trained(forks, tmp_path, data, 3, MAX_DELAY="3", LR="0.3", EPOCHS="4", UPDATE=update)
    assert metrics["objective"] < 1.7


def test_a_training_goes_on_after_its_last_checkpoint(
    tmp_path: Path, data: str, forks: Sequence[ForkServer]
) -> None:
    svrg = {"UPDATE": "proximal_svrg"}
    _, expected, _ = trained(forks, tmp_path / "whole", data, 2, **svrg)
    saved = {**svrg, "CHECKPOINT_URI": str(tmp_path / "saved"), "CHECKPOINT_EVERY_SECONDS": "3600"}
    trained(forks, tmp_path / "first", data, 2, **saved, EPOCHS="1")
    _, weights, ends = trained(forks, tmp_path / "second", data, 2, **saved, JOB_ATTEMPT="2")
    assert "resuming from step" in ends[0].stdout
    np.testing.assert_array_equal(weights, expected)


def test_a_training_that_had_done_all_its_steps_is_published(
    tmp_path: Path, data: str, forks: Sequence[ForkServer]
) -> None:
    saved = {"CHECKPOINT_URI": str(tmp_path / "saved")}
    first, expected, _ = trained(forks, tmp_path / "first", data, 2, **saved)
    _, weights, ends = trained(forks, tmp_path / "second", data, 2, **saved, JOB_ATTEMPT="2")
    np.testing.assert_array_equal(weights, expected)
    assert f"test accuracy {first['test_accuracy']:.3f}" in ends[0].stdout + ends[0].stderr


@pytest.mark.parametrize("killed", [0, 2])
def test_a_lost_process_ends_the_others_and_is_named(
    tmp_path: Path, data: str, forks: Sequence[ForkServer], killed: int
) -> None:
    with Launcher(tmp_path, forks=forks) as launcher:
        group = launcher.start_group(3, *MODULE, **environment(tmp_path, data) | {"EPOCHS": "10000"})
        first_line_of(group[0])
        group[killed].kill()
        ends = [end_of(process) for process in group]
    assert ends[killed].code == -signal.SIGKILL
    assert [end.code for rank, end in enumerate(ends) if rank != killed] == [1, 1]
    said = "the server is gone" if killed == 0 else "worker 2 is gone"
    assert said in ends[1 if killed == 0 else 0].stderr


def test_on_sigterm_the_server_saves_and_all_end(
    tmp_path: Path, data: str, forks: Sequence[ForkServer]
) -> None:
    saved = tmp_path / "saved"
    patient = {"CHECKPOINT_URI": str(saved), "CHECKPOINT_GRACE_SECONDS": "200"}
    with Launcher(tmp_path, forks=forks) as launcher:
        group = launcher.start_group(
            3, *MODULE, **environment(tmp_path, data) | patient | {"EPOCHS": "10000"}
        )
        first_line_of(group[0])
        for process in reversed(group):  # the server last: until it ends, the others do not
            process.terminate()
        ends = [end_of(process) for process in group]
    assert [end.code for end in ends] == [143] * 3, ends
    assert any(saved.iterdir())


def test_what_does_not_fit_is_refused(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="BATCH_SIZE 24 cannot be divided evenly among 5 workers"):
        plan_of(data, monkeypatch, 5)
    with pytest.raises(ParameterError, match="KKT_FILTER=true cannot be combined with UPDATE=proximal_svrg"):
        plan_of(data, monkeypatch, 2, KKT_FILTER="true", UPDATE="proximal_svrg")
    monkeypatch.setenv("KKT_FILTER", "false")
    with pytest.raises(DataError, match="do not fill a step: lower BATCH_SIZE to at most"):
        plan_of(data, monkeypatch, 2, BATCH_SIZE="1000")
