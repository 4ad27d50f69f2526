"""Data parallel training of a linear classifier: every process trains on its part of each batch."""

import json
import os
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from question_features import TERMS, load, shares
from trainer_kit.artifacts import publishing
from trainer_kit.job import Job

EPOCHS, BATCH_SIZE = int(os.environ.get("EPOCHS", "10")), int(os.environ.get("BATCH_SIZE", "32"))
LR, SEED = float(os.environ.get("LR", "2")), int(os.environ.get("SEED", "1"))

Array = NDArray[Any]


def slope_and_loss(weights: Array, x: Array, y: Array) -> tuple[Array, float]:
    """Return the gradient of the mean cross-entropy of some questions, and the mean."""
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
    weights = np.zeros((TERMS, y.max() + 1), np.float32)

    for epoch in range(1, EPOCHS + 1):
        losses = []
        for own in shares(len(y), BATCH_SIZE, world.size, SEED, epoch)[:, world.rank]:
            slope, loss = slope_and_loss(weights, x[own].astype(np.float32), y[own])
            world.Allreduce(MPI.IN_PLACE, slope)
            weights -= LR * slope / world.size
            losses.append(loss)
        loss = world.allreduce(sum(losses) / len(losses)) / world.size
        if world.rank == 0:
            progress = {"epoch": epoch, "total_epochs": EPOCHS, "metrics": {"loss": loss}}
            print("::progress::", json.dumps(progress), flush=True)

    if world.rank == 0:
        x, y = load(job.data_uri, "test")
        accuracy = float(np.mean((x @ weights).argmax(axis=1) == y))
        print(f"test accuracy {accuracy:.3f} on {len(y)} questions")
        with publishing(job.model_uri, {"job_id": job.job_id, "test_accuracy": accuracy}) as folder:
            np.save(folder / "weights.npy", weights)


if __name__ == "__main__":
    train()
