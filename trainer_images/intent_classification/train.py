"""Trains the classifier, alone or in a group: `python -m intent_classification.train`.

The environment says all that there is to say: see `trainer_kit.job.Job` and `Parameters`.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import LinearLR
from trainer_kit import artifacts, checkpoints, environment, process, seeds
from trainer_kit.errors import TrainingError
from trainer_kit.group import Group
from trainer_kit.job import Job
from trainer_kit.progress import Reporter, reporting

from intent_classification import data
from intent_classification.batches import Encoded, TrainingBatches, share_of
from intent_classification.classifier import Classifier
from intent_classification.splits import Split
from intent_classification.vocabulary import Vocabulary

log = logging.getLogger(__name__)

MAX_GRADIENT_NORM = 0.5


@dataclass(frozen=True)
class Parameters:
    """What a user may set, each by the environment variable of its name in upper case.

    LR is taken as it is, however many processes train. It is the step along the gradient of the
    group's whole batch, which is cut to a norm of MAX_GRADIENT_NORM; so a step goes no further with a
    large batch than with a small one, and the few steps of a large group are enough. Scaling LR by the
    number of processes, as is often done, was tried and is worse. Cross-validated accuracy on the
    questions, test split left out, 10 epochs, for 1 / 2 / 3 processes x 64: 0.86 / 0.85 / 0.85 with
    LR 4, against 0.86 / 0.82 / 0.57 with LR 4 / 8 / 12.
    """

    lr: float
    epochs: int
    batch_size: int
    """Examples a process takes in a step; the group takes `WORLD_SIZE` times as many."""
    fc_size: int
    """Width of the hidden layer."""
    seed: int

    @classmethod
    def from_environment(cls) -> Self:
        """Reads the parameters; raises ParameterError naming the first that is wrong."""
        return cls(
            lr=environment.positive_number("LR", default=4.0),
            epochs=environment.integer("EPOCHS", default=15, at_least=1, at_most=10_000),
            batch_size=environment.integer("BATCH_SIZE", default=64, at_least=1, at_most=1_000_000),
            fc_size=environment.integer("FC_SIZE", default=128, at_least=1, at_most=65_536),
            seed=environment.integer("SEED", default=1, at_least=0, at_most=seeds.LARGEST),
        )


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to, over the whole group."""

    epoch: int
    loss: float
    """Mean over the examples, each as it was when its step took it."""
    validation_accuracy: float


def train(group: Group) -> None:
    """Trains on the job's data, judges the result on the test split, and publishes the model."""
    job, parameters = Job.from_environment(), Parameters.from_environment()
    seeds.seed_everything(parameters.seed)

    dataset = data.load(job.data_uri)
    vocabulary = Vocabulary.of(example.text for example in dataset.examples[Split.TRAIN])
    classifier = Classifier.untrained(vocabulary, dataset.labels, parameters.fc_size)
    classifier.model.to(group.device)
    examples = {split: encode(dataset.examples[split], vocabulary) for split in Split}
    log.info(
        "training on %d examples of %d classes with %d terms; processes: %d",
        len(examples[Split.TRAIN]), len(dataset.labels), len(vocabulary), group.size,
    )  # fmt: skip

    with reporting(group) as reporter:
        history = fit(classifier.model, examples, parameters, group, reporter)
        test_accuracy = accuracy_on(examples[Split.TEST], classifier.model, group)
        reporter.report(test_accuracy=test_accuracy)
        log.info("test accuracy %.3f on %d questions", test_accuracy, len(examples[Split.TEST]))

        if group.is_master:
            description = describe(job, parameters, group, history, test_accuracy)
            with artifacts.publishing(job.model_uri, description, reporter) as folder:
                classifier.save(folder)
            log.info("model %s is in %s", job.model_name, job.model_uri)


def encode(examples: Sequence[data.Example], vocabulary: Vocabulary) -> list[Encoded]:
    """The examples as the model takes them."""
    return [Encoded(vocabulary.encode(text), label) for text, label in examples]


def fit(
    model: nn.Module,
    examples: Mapping[Split, Sequence[Encoded]],
    parameters: Parameters,
    group: Group,
    reporter: Reporter,
) -> list[Epoch]:
    """Trains `model` in place, and says what each epoch came to; goes on where a checkpoint left it."""
    batches = TrainingBatches(examples[Split.TRAIN], parameters.batch_size, group, parameters.seed)
    total_steps = parameters.epochs * batches.steps
    grouped_model = group.wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=parameters.lr)
    schedule = LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=total_steps)
    losses, place = LossSum(group), batches.place

    with checkpoints.kept(group, model, optimizer, schedule=schedule, place=place, losses=losses) as run:
        history: list[dict[str, Any]] = run.values.setdefault("history", [])
        while place.epoch <= parameters.epochs:
            for terms, offsets, labels in batches.rest_of_epoch():
                loss = functional.cross_entropy(grouped_model(terms, offsets), labels)
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
                optimizer.step()
                schedule.step()
                losses.add(loss.item())
                run.step()
                reporter.report(
                    step=run.steps,
                    total_steps=total_steps,
                    epoch=place.epoch,
                    total_epochs=parameters.epochs,
                    loss=loss.item(),
                )
            mean_loss = losses.mean()
            if not math.isfinite(mean_loss):
                raise TrainingError(f"the loss is not finite in epoch {place.epoch}: try a smaller LR")
            done = Epoch(
                epoch=place.epoch,
                loss=mean_loss,
                validation_accuracy=accuracy_on(examples[Split.VALIDATION], model, group),
            )
            reporter.report(validation_accuracy=done.validation_accuracy)
            log.info(
                "epoch %d of %d: loss %.4f, validation accuracy %.3f",
                done.epoch, parameters.epochs, done.loss, done.validation_accuracy,
            )  # fmt: skip
            history.append(asdict(done))
            place.next_epoch()
            losses.clear()
    return [Epoch(**epoch) for epoch in history]


class LossSum:
    """The losses of an epoch's steps so far, over the whole group."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.clear()

    def clear(self) -> None:
        """Begins a new epoch."""
        self._sum, self._count = 0.0, 0

    def add(self, loss: float) -> None:
        """Takes the loss of a step in this process."""
        self._sum += loss
        self._count += 1

    def mean(self) -> float:
        """Over all processes; every one must call it."""
        total, count = self._group.total(self._sum, self._count)
        return total / count

    def state_dict(self) -> dict[str, Any]:
        """The sums of all processes; every one must call it."""
        own = [self._sum if rank == self._group.rank else 0.0 for rank in range(self._group.size)]
        *sums, count = self._group.total(*own, self._count)
        return {"sums": sums, "count": count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on with this process's sum, or in a group of another size, with all of it in rank 0."""
        sums, count = state["sums"], state["count"]
        if len(sums) == self._group.size:
            self._sum, self._count = sums[self._group.rank], count / len(sums)
        elif self._group.is_master:
            self._sum, self._count = sum(sums), count


@torch.no_grad()
def accuracy_on(examples: Sequence[Encoded], model: nn.Module, group: Group) -> float:
    """The share of `examples` that `model` gets right; the group splits the work."""
    right = 0
    for terms, offsets, labels in share_of(examples, group):
        right += int((model(terms, offsets).argmax(dim=1) == labels).sum())
    [total_right] = group.total(right)
    return total_right / len(examples)


def describe(
    job: Job, parameters: Parameters, group: Group, history: Sequence[Epoch], test_accuracy: float
) -> dict[str, Any]:
    """The model's manifest: where it comes from and how good it is."""
    return {
        "model_name": job.model_name,
        "job_id": job.job_id,
        "attempt": job.attempt,
        "algorithm": job.algorithm,
        "dataset_id": job.dataset_id,
        "dataset_version_hash": job.dataset_version_hash,
        "parameters": {name.upper(): value for name, value in asdict(parameters).items()},
        "world_size": group.size,
        "metrics": {
            "loss": history[-1].loss,
            "validation_accuracy": history[-1].validation_accuracy,
            "test_accuracy": test_accuracy,
        },
        "epochs": [asdict(epoch) for epoch in history],
        "torch_version": torch.__version__,
    }


if __name__ == "__main__":
    process.main(train)
