"""Trains a Keras model with MultiWorkerMirroredStrategy: each worker has a share of every step."""

import os

import keras
import numpy as np
import tensorflow as tf
from question_features import TERMS, load, shares
from trainer_kit import process
from trainer_kit.artifacts import publishing
from trainer_kit.checkpoints import arrays, groups
from trainer_kit.job import Job
from trainer_kit.listening import await_end
from trainer_kit.progress import present

EPOCHS, BATCH_SIZE = int(os.environ.get("EPOCHS", "5")), int(os.environ.get("BATCH_SIZE", "32"))
LR, SEED = float(os.environ.get("LR", "3")), int(os.environ.get("SEED", "1"))


def train() -> None:
    """Train as a worker. The chief, rank 0, prints, and publishes the model."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # reads TF_CONFIG, and waits for the others
    size, rank = strategy.num_replicas_in_sync, strategy.cluster_resolver.task_id or 0
    job = Job.from_environment()
    features, classes = load(job.data_uri, "train")
    keras.utils.set_random_seed(SEED)
    with strategy.scope():  # variables created here stay equal on all workers
        model = keras.Sequential([keras.Input((TERMS,)), keras.layers.Dense(int(classes.max()) + 1)])
        optimizer = keras.optimizers.SGD(LR)
        optimizer.build(model.trainable_variables)

    def learn(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True)
            loss = tf.reduce_mean(losses) / size  # because gradients are summed over the workers
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(learn, (x, y)), axis=None)

    state = {"model": model.variables, "optimizer": optimizer.variables, "losses": []}
    per_epoch = len(classes) // (BATCH_SIZE * size)
    with arrays.kept(
        groups.tensorflow(strategy), state
    ) as run:  # a restarted group resumes from a checkpoint
        for epoch in range(run.steps // per_epoch + 1, EPOCHS + 1):
            done = run.steps % per_epoch
            losses = state["losses"] = state["losses"][:done]
            for batch in shares(len(classes), BATCH_SIZE, size, SEED, epoch)[done:, rank]:
                losses.append(float(step(features[batch].astype("f4"), classes[batch])))
                run.step()  # saves a checkpoint if one is due
            if rank == 0:
                loss = float(np.mean(losses))
                present().report(step=run.steps, epoch=epoch, total_epochs=EPOCHS, loss=loss)
    if rank == 0:
        x, y = load(job.data_uri, "test")
        accuracy = float(np.mean(np.argmax(model(x.astype("f4")), axis=1) == y))
        print(f"test accuracy {accuracy:.3f} on {len(y)} questions")
        with publishing(job.model_uri, {"job_id": job.job_id, "test_accuracy": accuracy}) as folder:
            model.save(folder / "model.keras")
    else:  # end after the chief: it may still be reading from this worker for the last collective operation
        await_end(strategy.cluster_resolver.cluster_spec().task_address("worker", 0))


if __name__ == "__main__":
    process.run(train)
