"""Trains with ParameterServerStrategy: the chief schedules steps, workers run them, ps hold the model."""

import os

import numpy as np
import tensorflow as tf
from question_features import TERMS, load, shares
from trainer_kit import background, process
from trainer_kit.artifacts import publishing
from trainer_kit.checkpoints import arrays, groups
from trainer_kit.job import Job
from trainer_kit.progress import present

EPOCHS, BATCH_SIZE = int(os.environ.get("EPOCHS", "5")), int(os.environ.get("BATCH_SIZE", "32"))
LR, SEED = float(os.environ.get("LR", "3")), int(os.environ.get("SEED", "1"))
PATIENCE = int(os.environ.get("GROUP_TIMEOUT", "600"))


def main() -> None:
    """Run the role of this process."""
    task = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    cluster = task.cluster_spec()
    if set(cluster.jobs) != {"chief", "worker", "ps"}:
        raise SystemExit("PARALLEL_INSTANCES must be 2 or more, and PS_INSTANCES 1 or more")
    if task.task_type == "chief":
        cut = tf.distribute.experimental.partitioners.FixedShardsPartitioner(len(cluster.job_tasks("ps")))
        train(tf.distribute.coordinator.ClusterCoordinator(tf.distribute.ParameterServerStrategy(task, cut)))
    else:  # a server never ends; in a thread, it does not block SIGTERM
        background.start(tf.distribute.Server(cluster, task.task_type, task.task_id).join).result()


def train(coordinator: tf.distribute.coordinator.ClusterCoordinator) -> None:
    """Train as the chief."""
    job = Job.from_environment()
    features, classes = load(job.data_uri, "train")
    with coordinator.strategy.scope():  # variables created here are on the parameter servers
        weights = tf.Variable(tf.zeros((TERMS, int(classes.max()) + 1)))
    parts = getattr(weights, "variables", [weights])  # each server has an equal share of the rows

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:  # runs on a worker
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, tf.cast(x, tf.float32) @ weights)
            loss = tf.reduce_mean(losses)
        for part, gradient in zip(parts, tape.gradient(loss, parts), strict=True):
            part.assign_sub(LR * gradient)
        return loss

    state = {"weights": list(parts), "losses": []}

    def complete() -> None:  # waits for the scheduled steps, and fetches their losses
        background.start(coordinator.join).result(PATIENCE)  # join alone waits forever for a lost worker
        state["losses"] = coordinator.fetch(state["losses"])

    per_epoch = len(classes) // BATCH_SIZE
    with arrays.kept(groups.alone(), state, before_save=complete) as run:  # the chief saves alone
        for epoch in range(run.steps // per_epoch + 1, EPOCHS + 1):
            done = run.steps % per_epoch
            state["losses"] = state["losses"][:done]
            for batch in shares(len(classes), BATCH_SIZE, 1, SEED, epoch)[done:, 0]:
                state["losses"].append(coordinator.schedule(step, (features[batch], classes[batch])))
                run.step()  # if a checkpoint is due, completes the scheduled steps and saves it
            complete()
            loss = float(np.mean(state["losses"]))
            present().report(step=run.steps, epoch=epoch, total_epochs=EPOCHS, loss=loss)
    x, y = load(job.data_uri, "test")
    learned = np.concatenate([part.numpy() for part in parts])
    accuracy = float(np.mean(np.argmax(x @ learned, axis=1) == y))
    print(f"test accuracy {accuracy:.3f} on {len(y)} questions")
    with publishing(job.model_uri, {"job_id": job.job_id, "test_accuracy": accuracy}) as folder:
        np.savez(folder / "model.npz", weights=learned)


if __name__ == "__main__":
    process.run(main)
