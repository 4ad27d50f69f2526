"""JAX with only a coordinator's address, a number of processes and an id."""

import signal
from pathlib import Path

import numpy as np
import pytest

from tests.support.ports import free_port
from tests.support.trainers.frameworks import (
    ENDLESS,
    GROUP_BATCH,
    KILLED,
    Trained,
    all_succeed,
    await_first_epoch,
    check_resumption,
    saving,
    start_jax,
)
from tests.support.trainers.launcher import Launcher, end_of


@pytest.mark.timeout(700)
def test_groups_of_any_size_make_the_same_model_from_the_same_steps(
    jax: Launcher, questions_uri: str, tmp_path: Path
) -> None:
    alone, pair = (train(jax, size, questions_uri, tmp_path / str(size)) for size in (1, 2))
    groups = [pair, train_killed(jax, 3, questions_uri, tmp_path)]
    assert alone.accuracy >= 0.80
    assert alone.losses == sorted(alone.losses, reverse=True)
    for group in groups:
        assert group.losses == pytest.approx(alone.losses, abs=1e-4)
        np.testing.assert_allclose(weights_of(group), weights_of(alone), atol=1e-3)
        assert {path.name for path in group.model.iterdir()} == {"model.npz", "manifest.json"}


def test_processes_fail_soon_after_the_loss_of_the_coordinator(jax: Launcher, questions_uri: str) -> None:
    group = start_jax(jax, 3, TRAINING_DATA_URI=questions_uri, MODEL_URI="nowhere", **ENDLESS)
    await_first_epoch(group[0])
    group[0].kill()
    assert all(end_of(process).code != 0 for process in group[1:])


def test_a_process_without_a_coordinator_fails_within_its_time_out(jax: Launcher) -> None:
    alone = jax.start(
        "-m",
        "jax_questions.train",
        JAX_COORDINATOR_ADDRESS=f"127.0.0.1:{free_port()}",
        JAX_NUM_PROCESSES="2",
        JAX_PROCESS_ID="1",
        GROUP_TIMEOUT="3",
    )
    end = end_of(alone)
    assert end.code != 0
    assert "DEADLINE_EXCEEDED" in end.stderr


def train(launcher: Launcher, size: int, data: str, model: Path) -> Trained:
    """Train with this number of processes, all of which succeed."""
    return Trained(model, all_succeed(start_jax(launcher, size, **variables_of(size, data, model))))


def train_killed(launcher: Launcher, size: int, data: str, folder: Path) -> Trained:
    """Train with a process that is killed after the first epoch, so that the others fail, and resume."""
    variables, saved = variables_of(size, data, folder / "resumed"), folder / "checkpoints"
    kill = {"KILL_AT": "47", "KILL_RANK": "1"}
    group = start_jax(
        launcher, size, (KILLED, "jax_questions.train"), **variables, **saving(saved, 1, **kill)
    )
    first, second, *rest = [end_of(process) for process in group]
    assert second.code == -signal.SIGKILL
    assert all(end.code != 0 for end in (first, *rest))
    resumed = all_succeed(start_jax(launcher, size, **variables, **saving(saved, 2)))
    check_resumption(first, resumed[0], killed_at=47)
    return Trained(folder / "resumed", resumed)


def variables_of(size: int, data: str, model: Path) -> dict[str, str]:
    return {"TRAINING_DATA_URI": data, "MODEL_URI": str(model), "BATCH_SIZE": str(GROUP_BATCH // size)}


def weights_of(trained: Trained) -> np.ndarray:
    """Return the weights of the published model."""
    with np.load(trained.model / "model.npz") as arrays:
        return np.asarray(arrays["weights"])
