"""Data parallel training of a Keras model with Horovod on TensorFlow."""

import os

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
from question_features import TERMS, load, shares
from trainer_kit import horovod, process
from trainer_kit.artifacts import publishing
from trainer_kit.checkpoints import arrays, groups
from trainer_kit.job import Job
from trainer_kit.progress import present

EPOCHS, BATCH_SIZE = int(os.environ.get("EPOCHS", "10")), int(os.environ.get("BATCH_SIZE", "32"))
LR, SEED = float(os.environ.get("LR", "2")), int(os.environ.get("SEED", "1"))


def train() -> None:
    """Train in this process. Every process of the group runs this."""
    with horovod.joined("tensorflow"):
        job = Job.from_environment()
        features, classes = load(job.data_uri, "train")
        keras.utils.set_random_seed(SEED + hvd.rank())  # rank 0 broadcasts its weights below
        model = keras.Sequential([keras.Input((TERMS,)), keras.layers.Dense(int(classes.max()) + 1)])
        optimizer = keras.optimizers.SGD(LR)
        optimizer.build(model.trainable_variables)
        weights = [each.value for each in model.trainable_variables]  # Horovod takes no Keras variables
        hvd.broadcast_variables(weights, root_rank=0)

        @tf.function
        def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                losses = keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True)
                loss = tf.reduce_mean(losses)
            # Averages the gradients of all processes.
            gradients = hvd.DistributedGradientTape(tape).gradient(loss, weights)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        state = {"model": model.variables, "optimizer": optimizer.variables}  # the same in all processes
        own: dict[str, list[float]] = {"losses": []}  # this process's losses in this epoch
        per_epoch = len(classes) // (BATCH_SIZE * hvd.size())

        # A restarted group resumes from a checkpoint.
        with arrays.kept(groups.horovod("tensorflow"), state, own) as run:
            for epoch in range(run.steps // per_epoch + 1, EPOCHS + 1):
                done = run.steps % per_epoch
                losses = own["losses"] = own["losses"][:done]
                for batch in shares(len(classes), BATCH_SIZE, hvd.size(), SEED, epoch)[done:, hvd.rank()]:
                    losses.append(float(step(features[batch].astype("f4"), classes[batch])))
                    run.step()  # saves a checkpoint if one is due
                mean = float(hvd.allreduce(tf.constant(np.mean(losses))))  # average by default
                if hvd.rank() == 0:
                    present().report(step=run.steps, epoch=epoch, total_epochs=EPOCHS, loss=mean)

        if hvd.rank() == 0:
            x, y = load(job.data_uri, "test")
            accuracy = float(np.mean(np.argmax(model(x.astype("f4")), axis=1) == y))
            print(f"test accuracy {accuracy:.3f} on {len(y)} questions")
            with publishing(job.model_uri, {"job_id": job.job_id, "test_accuracy": accuracy}) as folder:
                model.save(folder / "model.keras")


if __name__ == "__main__":
    process.run(train)
