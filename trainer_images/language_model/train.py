"""Trains the language model as one process or as a group: `python -m language_model.train`.

Its settings are environment variables: see `trainer_kit.job.Job` and `layout.Layout`.
"""

import json
import logging
import math
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.stateful import Stateful
from trainer_kit import artifacts, checkpoints, process, seeds
from trainer_kit.errors import TrainingError
from trainer_kit.group import Group
from trainer_kit.job import Job
from trainer_kit.progress import Reporter, reporting
from trainer_kit.staging import staged
from trainer_kit.staging.settings import Settings as Staging

from language_model import (
    batch_size,
    counting,
    data,
    gossip_loop,
    parameter_server_loop,
    pass_times,
    pipedream_loop,
)
from language_model.assembly import Learner, assemble
from language_model.counting import counted
from language_model.layout import Layout
from language_model.weights import gather
from language_model.zero import own_share

log = logging.getLogger(__name__)

WEIGHTS_FILE, LAYOUT_FILE = "model.pt", "layout.json"
VALIDATION_EXAMPLES = 128
"""The number of examples for the validation loss. It is rounded up to whole batches."""


def check() -> None:
    """Check the parameters before this process joins its group."""
    Layout.from_environment()
    Staging.from_environment()


def train(group: Group) -> None:
    """Train on the job's data, evaluate the model on the validation split, and publish it."""
    job, layout = Job.from_environment(), Layout.from_environment()
    seeds.seed_everything(layout.seed)
    learner = assemble(layout, group)
    log.info(
        "%s: pipeline %d x data %d x tensor %d",
        layout.strategy, layout.pipeline, layout.data, layout.tensor,
    )  # fmt: skip
    with reporting(group) as reporter:
        with staged(group, job.data_uri, reporter) as data_folder:
            blocks, unseen = (
                data.load(data_folder, name) for name in (data.TRAIN_FILE, data.VALIDATION_FILE)
            )
        history: dict[str, float] | None
        if layout.is_served:
            history = parameter_server_loop.fit(learner, layout, blocks, group, reporter)
            group = Group(rank=0, size=1, device=group.device)  # the rank that leads finishes alone
        else:
            take_steps = pipedream_loop.fit if layout.is_asynchronous else fit
            if layout.averages_in_pairs:
                take_steps = gossip_loop.fit
            history = take_steps(learner, layout, blocks, group, reporter)
        if history is None:
            return
        validation_loss = judge(learner, layout, unseen, group)
        reporter.report(validation_loss=validation_loss)
        log.info("validation loss %.4f nats per byte", validation_loss)
        weights, timeline = gather(learner.model, group), learner.timeline()
        if group.is_master:
            description = describe(job, layout, history, validation_loss)
            with artifacts.publishing(job.model_uri, description, reporter) as folder:
                torch.save(weights, folder / WEIGHTS_FILE)
                (folder / LAYOUT_FILE).write_text(json.dumps(asdict(layout)), encoding="utf-8")
                if timeline:
                    (folder / pass_times.FILE).write_text(json.dumps(timeline), encoding="utf-8")
            log.info("model %s is in %s", job.model_name, job.model_uri)


def fit(
    learner: Learner, layout: Layout, blocks: Tensor, group: Group, reporter: Reporter
) -> dict[str, float]:
    """Take the remaining steps, and return the last reported metrics."""
    examples = data.Examples(blocks, layout.context)
    place = data.Place(len(examples), layout.seed)
    metrics: dict[str, float] = {}
    optimizer = own_share(learner.optimizer)
    others: dict[str, Stateful] = {"place": place}
    if learner.scaler.is_enabled():
        others["scaler"] = learner.scaler
    if learner.local_weights is not None:
        others["local_weights"] = learner.local_weights
    # A checkpoint has only one copy of the weights. So `flush` averages local weights before each checkpoint,
    # even within a round of LOCAL_STEPS steps.
    kept = checkpoints.kept(group, learner.model, optimizer, before_save=learner.flush, **others)
    with kept as run:
        first = run.steps + 1
        for step in range(first, layout.steps + 1):
            size = batch_size.at_step(step, layout)
            batch = examples.batch(place.take(size.batch_size), group.device)
            is_counted = step == min(first + counting.counted_step(layout) - 1, layout.steps)
            with counted(learner, group, metrics) if is_counted else nullcontext():
                loss = learner.learn(batch, size.learning_rate, step)
            [metrics["loss"]] = group.total(loss)
            if not math.isfinite(metrics["loss"]):
                raise TrainingError(f"the loss is not finite in step {step}: try a smaller LR")
            run.step()
            # `total` has waited for all ranks, so the reported time of a step is that of the whole group.
            reporter.report(step=run.steps, total_steps=layout.steps, examples=size.batch_size)
            reporter.report(**metrics)  # type: ignore[arg-type]  # all of these are metrics
    log.info("loss %.6f after %d steps", metrics.get("loss", math.nan), layout.steps)
    return metrics


def judge(learner: Learner, layout: Layout, unseen: Tensor, group: Group) -> float:
    """Return the mean loss over VALIDATION_EXAMPLES examples of the validation split.

    Their number is rounded up to whole batches. All batch sizes that divide VALIDATION_EXAMPLES use the same
    examples, so their losses can be compared.
    """
    examples = data.Examples(unseen, layout.context)
    place = data.Place(len(examples), layout.seed)
    count = math.ceil(VALIDATION_EXAMPLES / layout.batch_size)
    batches = [place.take(layout.batch_size) for _ in range(count)]
    losses = [learner.judge(examples.batch(numbers, group.device)) for numbers in batches]
    [total] = group.total(sum(losses))
    return total / count


def describe(job: Job, layout: Layout, metrics: dict[str, float], validation_loss: float) -> dict[str, Any]:
    """Return the description for the model's manifest: the origin and the metrics of the model."""
    return {
        "model_name": job.model_name,
        "job_id": job.job_id,
        "attempt": job.attempt,
        "algorithm": job.algorithm,
        "dataset_id": job.dataset_id,
        "dataset_version_hash": job.dataset_version_hash,
        "parameters": {name.upper(): value for name, value in asdict(layout).items()},
        "world_size": layout.world_size,
        "metrics": {**metrics, "validation_loss": validation_loss},
        "torch_version": torch.__version__,
    }


if __name__ == "__main__":
    process.main(train, check)
