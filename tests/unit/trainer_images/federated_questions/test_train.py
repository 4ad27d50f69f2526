"""Real groups of clients with data of their own."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federated_questions.prepare_data import prepare
from question_features import TERMS, load

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import ROOT
from tests.support.trainers.launcher import Ended, Launcher, end_of

SIZE, CLASSES = 3, 6
PARAMETERS = (TERMS + 1) * CLASSES


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepare(SIZE, 1.0, str(tmp_path_factory.mktemp("clients")), "clients").uri


def trained(
    forks: Sequence[ForkServer], folder: Path, data: str, **variables: str
) -> tuple[list[dict[str, Any]], torch.Tensor, list[Ended]]:
    """Return the reports of each round, the weights, and the ends of the processes."""
    with Launcher(folder, forks=forks) as launcher:
        group = launcher.start_group(
            SIZE,
            *("-m", "federated_questions.train"),
            PYTHONPATH=f"{ROOT}:{ROOT / 'trainer_images'}",
            TRAINING_DATA_URI=data,
            MODEL_URI=str(folder / "model"),
            **variables,
        )
        ends = [end_of(process) for process in group]
    assert [end.code for end in ends] == [0] * SIZE, [end.stderr for end in ends]
    lines = re.findall(r"^::progress:: ?(.*)$", ends[0].stdout, re.MULTILINE)
    return (
        [json.loads(line)["metrics"] for line in lines],
        torch.load(folder / "model/model.pt")["weight"],
        ends,
    )


def test_one_step_of_all_clients_is_gradient_descent_on_all_data(
    tmp_path: Path, data: str, forks: Sequence[ForkServer]
) -> None:
    _, weights, _ = trained(forks, tmp_path, data, ROUNDS="3", BATCH_SIZE="0", LR="1")
    parts = [load(data, "train", f"client-{client}.csv") for client in range(SIZE)]
    x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    expected, bias = np.zeros((TERMS, CLASSES)), np.zeros(CLASSES)
    for _ in range(3):
        scores = x @ expected + bias
        chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        chances[np.arange(len(y)), y] -= 1
        expected -= x.T @ chances / len(y)
        bias -= chances.mean(0)
    np.testing.assert_allclose(weights.numpy(), expected.T, atol=1e-6)


def test_a_sample_of_the_clients_sends_its_weights_and_a_restart_goes_on(
    tmp_path: Path, data: str, forks: Sequence[ForkServer]
) -> None:
    variables = {"CLIENT_SHARE": "0.7", "CHECKPOINT_EVERY_STEPS": "1"}
    (whole := tmp_path / "whole").mkdir()
    (parts := tmp_path / "parts").mkdir()
    reports, weights, _ = trained(
        forks, whole, data, **variables, ROUNDS="6", CHECKPOINT_URI=str(whole / "saved")
    )
    # Two of three in each round. The server sends nothing to itself.
    assert 6 <= reports[-1]["sent_bytes"] / (2 * 4 * PARAMETERS) <= 12
    assert reports[-1]["test_accuracy"] > 0.7
    saved = {**variables, "CHECKPOINT_URI": str(parts / "saved")}
    trained(forks, parts, data, **saved, ROUNDS="3")
    _, resumed, ends = trained(forks, parts, data, **saved, ROUNDS="6", JOB_ATTEMPT="2")
    assert "resuming from step 3" in ends[0].stdout
    assert torch.equal(resumed, weights)
