"""Trains on the devices of all processes: each device has the whole model and a part of each batch."""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from question_features import TERMS, load, shares
from trainer_kit import process
from trainer_kit.artifacts import publishing
from trainer_kit.checkpoints import arrays, groups
from trainer_kit.job import Job
from trainer_kit.progress import present

EPOCHS, BATCH_SIZE = int(os.environ.get("EPOCHS", "5")), int(os.environ.get("BATCH_SIZE", "32"))
LR, SEED = float(os.environ.get("LR", "3")), int(os.environ.get("SEED", "1"))


def train() -> None:
    """Train in this process. Every process runs this; only rank 0 prints and publishes the model."""
    size, rank = int(os.environ["JAX_NUM_PROCESSES"]), int(os.environ["JAX_PROCESS_ID"])
    address, patience = os.environ["JAX_COORDINATOR_ADDRESS"], int(os.environ.get("GROUP_TIMEOUT", "600"))
    jax.distributed.initialize(address, size, rank, initialization_timeout=patience)
    mesh = Mesh(jax.devices(), "data")  # the devices of all processes
    spread, everywhere = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    job = Job.from_environment()
    features, classes = load(job.data_uri, "train")
    weights = jax.device_put(np.zeros((TERMS, int(classes.max()) + 1), "f4"), everywhere)
    state = {"weights": weights, "losses": []}
    per_epoch = len(classes) // (BATCH_SIZE * size)

    def loss_of(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        scores = jax.nn.log_softmax(x.astype("f4") @ weights)
        return -jnp.mean(jnp.sum(scores * jax.nn.one_hot(y, scores.shape[1]), axis=1))  # over all processes

    @jax.jit
    def step(weights: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss, gradient = jax.value_and_grad(loss_of)(weights, x, y)
        return weights - LR * gradient, loss

    with arrays.kept(groups.jax(), state) as run:  # a restarted group resumes from a checkpoint
        for epoch in range(run.steps // per_epoch + 1, EPOCHS + 1):
            done = run.steps % per_epoch
            losses = state["losses"] = state["losses"][:done]
            for batch in shares(len(classes), BATCH_SIZE, size, SEED, epoch)[done:, rank]:
                x, y = jax.make_array_from_process_local_data(spread, (features[batch], classes[batch]))
                state["weights"], loss = step(state["weights"], x, y)
                losses.append(loss)
                run.step()  # saves a checkpoint if one is due
            if rank == 0:
                loss = float(np.mean(losses))
                present().report(step=run.steps, epoch=epoch, total_epochs=EPOCHS, loss=loss)
    weights = state["weights"]
    if rank == 0:
        x, y = load(job.data_uri, "test")
        accuracy = float(np.mean(np.argmax(x @ jax.device_get(weights), axis=1) == y))
        print(f"test accuracy {accuracy:.3f} on {len(y)} questions")
        with publishing(job.model_uri, {"job_id": job.job_id, "test_accuracy": accuracy}) as folder:
            np.savez(folder / "model.npz", weights=weights)
    jax.distributed.shutdown()  # waits for the others; to them, an earlier end would look like a failure


if __name__ == "__main__":
    process.run(train)
