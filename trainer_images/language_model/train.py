"""Trains the language model, alone or in a group: `python -m language_model.train`.

The environment says all that there is to say: see `trainer_kit.job.Job` and `layout.Layout`.
"""

import json
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from trainer_kit import artifacts, checkpoints, process, seeds
from trainer_kit.errors import ParameterError, TrainingError
from trainer_kit.group import Group
from trainer_kit.job import Job
from trainer_kit.progress import Reporter, reporting

from language_model import batch_size, counting, data, parameter_server_loop
from language_model.assembly import Learner, assemble
from language_model.choices import Precision
from language_model.layout import Layout
from language_model.weights import gather
from language_model.zero import own_share

log = logging.getLogger(__name__)

WEIGHTS_FILE, LAYOUT_FILE = "model.pt", "layout.json"
COUNTED_STEP = 4
"""Of the steps of an attempt; in the first ones some things are made that stay."""
VALIDATION_BATCHES = 4


def check() -> None:
    """Refuses what cannot be, before anybody waits for this process."""
    layout = Layout.from_environment()
    if layout.precision is Precision.FP16 and not torch.cuda.is_available():
        raise ParameterError("PRECISION=fp16 needs a GPU, and there is none here: use bf16 or fp32")


def train(group: Group) -> None:
    """Trains on the job's data, judges the result on the validation split, and publishes the model."""
    job, layout = Job.from_environment(), Layout.from_environment()
    seeds.seed_everything(layout.seed)
    blocks, unseen = (data.load(job.data_uri, name) for name in (data.TRAIN_FILE, data.VALIDATION_FILE))
    learner = assemble(layout, group)
    log.info(
        "%s: pipeline %d x data %d x tensor %d",
        layout.strategy, layout.pipeline, layout.data, layout.tensor,
    )  # fmt: skip
    with reporting(group) as reporter:
        take_steps = parameter_server_loop.fit if layout.is_served else fit
        history = take_steps(learner, layout, blocks, group, reporter)
        validation_loss = judge(learner, layout, unseen, group)
        reporter.report(validation_loss=validation_loss)
        log.info("validation loss %.4f nats a byte", validation_loss)
        weights = gather(learner.model, group)
        if group.is_master:
            description = describe(job, layout, history, validation_loss)
            with artifacts.publishing(job.model_uri, description, reporter) as folder:
                torch.save(weights, folder / WEIGHTS_FILE)
                (folder / LAYOUT_FILE).write_text(json.dumps(asdict(layout)), encoding="utf-8")
            log.info("model %s is in %s", job.model_name, job.model_uri)


def fit(
    learner: Learner, layout: Layout, blocks: Tensor, group: Group, reporter: Reporter
) -> dict[str, float]:
    """Takes the steps that are left; gives the newest of what was reported."""
    examples = data.Examples(blocks, layout.context)
    place = data.Place(len(examples), layout.seed)
    told: dict[str, float] = {}
    optimizer = own_share(learner.optimizer)
    with checkpoints.kept(group, learner.model, optimizer, place=place) as run:
        first = run.steps + 1
        for step in range(first, layout.steps + 1):
            size = batch_size.at_step(step, layout)
            batch = examples.batch(place.take(size.batch_size), group.device)
            is_counted = step == min(first + COUNTED_STEP - 1, layout.steps)
            with counted(learner, group, told) if is_counted else nullcontext():
                loss = learner.learn(batch, size.learning_rate)
            [told["loss"]] = group.total(loss)
            if not math.isfinite(told["loss"]):
                raise TrainingError(f"the loss is not finite in step {step}: try a smaller LR")
            run.step()
            reporter.report(step=run.steps, total_steps=layout.steps)
            reporter.report(**told)  # type: ignore[arg-type]  # none of them is a count
    log.info("loss %.6f after %d steps", told.get("loss", math.nan), layout.steps)
    return told


@contextmanager
def counted(learner: Learner, group: Group, told: dict[str, float]) -> Iterator[None]:
    """Counts the step that the block takes, and tells what it cost."""
    with counting.counting(learner) as cost:
        yield
    told |= asdict(counting.of_group(cost, group))
    log.info("::counted:: %s", json.dumps({name: told[name] for name in asdict(cost)}))


def judge(learner: Learner, layout: Layout, unseen: Tensor, group: Group) -> float:
    """The mean loss over some batches of text that no step has taken."""
    examples = data.Examples(unseen, layout.context)
    place = data.Place(len(examples), layout.seed)
    batches = [place.take(layout.batch_size) for _ in range(VALIDATION_BATCHES)]
    losses = [learner.judge(examples.batch(numbers, group.device)) for numbers in batches]
    [total] = group.total(sum(losses))
    return total / VALIDATION_BATCHES


def describe(job: Job, layout: Layout, told: dict[str, float], validation_loss: float) -> dict[str, Any]:
    """The model's manifest: where it comes from and how good it is."""
    return {
        "model_name": job.model_name,
        "job_id": job.job_id,
        "attempt": job.attempt,
        "algorithm": job.algorithm,
        "dataset_id": job.dataset_id,
        "dataset_version_hash": job.dataset_version_hash,
        "parameters": {name.upper(): value for name, value in asdict(layout).items()},
        "world_size": layout.world_size,
        "metrics": {**told, "validation_loss": validation_loss},
        "torch_version": torch.__version__,
    }


if __name__ == "__main__":
    process.main(train, check)
