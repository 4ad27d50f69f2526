"""Data parallel training of a linear classifier: every process trains on its part of each batch."""

import os
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from question_features import TERMS, load, shares
from trainer_kit.artifacts import publishing
from trainer_kit.checkpoints import arrays, groups
from trainer_kit.job import Job
from trainer_kit.progress import present

EPOCHS, BATCH_SIZE = int(os.environ.get("EPOCHS", "10")), int(os.environ.get("BATCH_SIZE", "32"))
LR, SEED = float(os.environ.get("LR", "2")), int(os.environ.get("SEED", "1"))

Array = NDArray[Any]


def slope_and_loss(weights: Array, x: Array, y: Array) -> tuple[Array, float]:
    """Return the gradient of the mean cross-entropy of some questions, and this mean."""
    scores = x @ weights
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    loss = -np.log(chances[np.arange(len(y)), y]).mean()
    chances[np.arange(len(y)), y] -= 1
    return x.T @ chances / len(y), float(loss)


def train() -> None:
    """Train in this process. Every process of the group runs this."""
    world = MPI.COMM_WORLD
    job = Job.from_environment()
    x, y = load(job.data_uri, "train")
    per_epoch = len(y) // (BATCH_SIZE * world.size)
    state = {"weights": np.zeros((TERMS, y.max() + 1), np.float32)}  # the same in all processes
    own: dict[str, list[float]] = {"losses": []}  # this process's losses in this epoch

    with arrays.kept(groups.mpi(world), state, own) as run:  # a restarted group resumes from a checkpoint
        weights = state["weights"]
        for epoch in range(run.steps // per_epoch + 1, EPOCHS + 1):
            done = run.steps % per_epoch
            losses = own["losses"] = own["losses"][:done]
            for batch in shares(len(y), BATCH_SIZE, world.size, SEED, epoch)[done:, world.rank]:
                slope, loss = slope_and_loss(weights, x[batch].astype(np.float32), y[batch])
                world.Allreduce(MPI.IN_PLACE, slope)
                weights -= LR * slope / world.size
                losses.append(loss)
                run.step()  # saves a checkpoint if one is due
            loss = world.allreduce(sum(losses) / len(losses)) / world.size
            if world.rank == 0:
                present().report(step=run.steps, epoch=epoch, total_epochs=EPOCHS, loss=loss)

    if world.rank == 0:
        x, y = load(job.data_uri, "test")
        accuracy = float(np.mean((x @ weights).argmax(axis=1) == y))
        print(f"test accuracy {accuracy:.3f} on {len(y)} questions")
        with publishing(job.model_uri, {"job_id": job.job_id, "test_accuracy": accuracy}) as folder:
            np.save(folder / "weights.npy", weights)


if __name__ == "__main__":
    train()
