"""TensorFlow with only TF_CONFIG: synchronous workers, and parameter servers."""

import signal
from pathlib import Path

import numpy as np
import pytest
from question_features import TERMS, load, shares
from trainer_kit.checkpoints.folder import CheckpointFolder

from tests.support.frameworks import ROOT
from tests.support.trainers.frameworks import (
    ENDLESS,
    GROUP_BATCH,
    KILLED,
    Trained,
    all_succeed,
    await_first_epoch,
    check_resumption,
    cluster_of,
    saving,
    start_tasks,
)
from tests.support.trainers.launcher import Launcher, end_of

WORKERS = "tests.support.trainers.programs.tensorflow_workers"
FOR_WORKERS = {"PYTHONPATH": f"{ROOT}:{ROOT / 'trainer_images'}"}
PARAMETER_SERVER = "tensorflow_questions.parameter_server"
LOSING_PATIENCE = """
import os, time
from pathlib import Path
from tensorflow_questions import parameter_server
from trainer_kit import process, progress

report = progress.Reporter.report

def report_and_wait(*arguments, **metrics):
    report(*arguments, **metrics)
    while not Path(os.environ["LOST"]).exists():
        time.sleep(0.01)
    parameter_server.PATIENCE = 1

progress.Reporter.report = report_and_wait
process.run(parameter_server.main)
"""
"""Runs the parameter server. After its first report, the chief waits for the file LOST, and then has a
time-out of 1 s."""
BATCH_SIZE, LR, STEPS = 32, 3, 135
"""The defaults of the parameter server. STEPS is the number of steps of an epoch."""


@pytest.mark.timeout(700)
def test_workers_of_any_number_learn_the_same_from_the_same_steps(
    tensorflow: Launcher, questions_uri: str, tmp_path: Path
) -> None:
    alone = train(tensorflow, 1, questions_uri, tmp_path / "1")
    group = train_killed(tensorflow, 3, questions_uri, tmp_path)
    assert alone.accuracy >= 0.80
    assert alone.losses == sorted(alone.losses, reverse=True)
    assert group.losses == pytest.approx(alone.losses, abs=1e-4)
    assert group.accuracy == pytest.approx(alone.accuracy, abs=0.005)
    assert [end.stdout for end in group.ends[1:]] == [""] * 2
    assert {path.name for path in group.model.iterdir()} == {"model.keras", "manifest.json"}


def test_workers_fail_soon_after_the_loss_of_the_chief(tensorflow: Launcher, questions_uri: str) -> None:
    places = {"TRAINING_DATA_URI": questions_uri, "MODEL_URI": "nowhere", **FOR_WORKERS}
    workers = start_tasks(tensorflow, WORKERS, cluster_of(worker=2), **places, **ENDLESS)["worker"]
    await_first_epoch(workers[0])
    workers[0].kill()
    left = end_of(workers[1])
    assert left.code == 1
    assert "CollectiveReduce" in left.stderr


@pytest.mark.timeout(700)
def test_the_chief_resumes_after_the_loss_of_a_server_and_the_servers_end_on_sigterm(
    tensorflow: Launcher, questions_uri: str, tmp_path: Path
) -> None:
    saved, sizes = tmp_path / "checkpoints", {"chief": 1, "worker": 1, "ps": 2}
    places = {"TRAINING_DATA_URI": questions_uri, "MODEL_URI": str(tmp_path / "model")}
    variables = {**places, **saving(saved, 1), **ENDLESS}
    tasks = start_tasks(tensorflow, PARAMETER_SERVER, cluster_of(**sizes), **variables)
    await_first_epoch(tasks["chief"][0])
    tasks["ps"][0].kill()
    chief = end_of(tasks["chief"][0])
    assert chief.code == 1
    assert "UnavailableError" in chief.stderr
    tasks["worker"][0].kill()

    step = CheckpointFolder(str(saved)).look().published[0].step
    epochs = step // STEPS + 2
    variables = {**places, **saving(saved, 2), "EPOCHS": str(epochs)}
    tasks = start_tasks(tensorflow, PARAMETER_SERVER, cluster_of(**sizes), **variables)
    trained = Trained(tmp_path / "model", all_succeed(tasks["chief"]))
    arrays = b"".join(file.read_bytes() for file in saved.rglob("*") if file.is_file())
    assert arrays.count(b"'shape': (%d, 6)" % (TERMS // 2)) >= 2  # one part of each server
    assert f"resuming from step {step}, saved by attempt 1\n" in trained.ends[0].stdout
    # Only with one worker, steps follow one another.
    assert trained.losses == pytest.approx(sequential_losses(questions_uri, epochs)[-2:], abs=1e-4)
    assert trained.accuracy >= 0.80
    assert {path.name for path in trained.model.iterdir()} == {"model.npz", "manifest.json"}

    servers = [*tasks["worker"], *tasks["ps"]]
    assert [server.poll() for server in servers] == [None] * 3
    for server in servers:
        server.terminate()
    assert [end_of(server).code for server in servers] == [143] * 3


def test_a_chief_that_lost_its_only_worker_fails_within_its_time_out(
    tensorflow: Launcher, questions_uri: str, tmp_path: Path
) -> None:
    is_lost = tmp_path / "lost"
    variables = {"TRAINING_DATA_URI": questions_uri, "MODEL_URI": "nowhere", "LOST": str(is_lost)}
    cluster = cluster_of(chief=1, worker=1, ps=1)
    tasks = start_tasks(tensorflow, LOSING_PATIENCE, cluster, "-c", **variables, **ENDLESS)
    [chief], [lost] = tasks["chief"], tasks["worker"]
    await_first_epoch(chief)
    lost.kill()
    lost.wait()
    is_lost.touch()
    end = end_of(chief)
    assert end.code == 1
    assert "TimeoutError" in end.stderr


def test_missing_parameter_servers_are_reported_at_once(tensorflow: Launcher) -> None:
    [alone] = start_tasks(tensorflow, PARAMETER_SERVER, cluster_of(worker=1))["worker"]
    end = end_of(alone)
    assert end.code == 1
    assert end.stderr.endswith("PARALLEL_INSTANCES must be 2 or more, and PS_INSTANCES 1 or more\n")


def sequential_losses(uri: str, epochs: int) -> list[float]:
    """Return the mean loss of each epoch of a training whose steps follow one another."""
    features, classes = load(uri, "train")
    weights = np.zeros((TERMS, 6), np.float32)
    means = []
    for epoch in range(1, epochs + 1):
        losses = []
        for batch in shares(len(classes), BATCH_SIZE, 1, seed=1, epoch=epoch)[:, 0]:
            rows, terms = np.nonzero(features[batch])
            scores, right = np.zeros((BATCH_SIZE, 6), np.float32), (np.arange(BATCH_SIZE), classes[batch])
            np.add.at(scores, rows, weights[terms])
            chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            losses.append(-np.log(chances[right]).mean())
            chances[right] -= 1
            np.subtract.at(weights, terms, LR * chances[rows] / BATCH_SIZE)
        means.append(float(np.mean(losses)))
    return means


def train(launcher: Launcher, size: int, data: str, model: Path) -> Trained:
    """Train with this number of workers, all of which succeed."""
    workers = start_tasks(launcher, WORKERS, cluster_of(worker=size), **variables_of(size, data, model))
    return Trained(model, all_succeed(workers["worker"]))


def train_killed(launcher: Launcher, size: int, data: str, folder: Path) -> Trained:
    """Train with a worker that is killed after the first epoch, so that the others fail, and resume."""
    variables, saved = variables_of(size, data, folder / "resumed"), folder / "checkpoints"
    kill = saving(saved, 1, KILL_AT="47", KILL_RANK="worker 1")
    group = start_tasks(launcher, WORKERS, cluster_of(worker=size), KILLED, **variables, **kill)
    chief, *workers = (end_of(process) for process in group["worker"])
    assert [chief.code, *(worker.code for worker in workers)] == [1, -signal.SIGKILL, *[1] * (size - 2)]
    assert "CollectiveReduce" in chief.stderr
    again = start_tasks(launcher, WORKERS, cluster_of(worker=size), **variables, **saving(saved, 2))
    resumed = all_succeed(again["worker"])
    check_resumption(chief, resumed[0], killed_at=47)
    return Trained(folder / "resumed", resumed)


def variables_of(size: int, data: str, model: Path) -> dict[str, str]:
    variables = {"TRAINING_DATA_URI": data, "MODEL_URI": str(model), "BATCH_SIZE": str(GROUP_BATCH // size)}
    return variables | FOR_WORKERS
