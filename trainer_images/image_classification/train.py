"""Trains ResNet-18 as one process or as a group: `python -m image_classification.train`.

Its settings are environment variables: see `trainer_kit.job.Job` and `Parameters`.
"""

import logging
import math
from dataclasses import asdict, dataclass
from typing import Self

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import BatchSampler
from trainer_kit import artifacts, batch_norm, checkpoints, environment, process, seeds
from trainer_kit.errors import ParameterError, TrainingError
from trainer_kit.group import Group
from trainer_kit.job import Job
from trainer_kit.progress import Reporter, reporting
from trainer_kit.sampling import EpochSampler, steps_of_epoch
from trainer_kit.staging import staged

from image_classification import data, runs
from image_classification.augmentation import Augmentation
from image_classification.data import Images
from image_classification.resnet import resnet18

log = logging.getLogger(__name__)

_EVALUATED = 512
"""The number of images that are evaluated together."""


@dataclass(frozen=True)
class Parameters:
    """The parameters. Each is set by the environment variable with its name in upper case."""

    epochs: int
    batch_size: int
    """The number of images of each process in a step."""
    lr: float
    """The learning rate. It is not scaled by the size of the group."""
    warm_up: int
    """The number of steps in which the learning rate grows (Goyal et al., arXiv:1706.02677, 2017)."""
    milestones: tuple[int, ...]
    """The epochs after which the learning rate is divided by 10."""
    momentum: float
    weight_decay: float
    width: int
    """The number of channels of the first stage."""
    padding: int
    """The largest number of pixels by which an image is shifted. 0: images are not shifted."""
    flip: bool
    """Whether about half of the images are mirrored."""
    top_k: int
    """`top_k_accuracy` counts an image as right if its class has one of the `top_k` highest scores."""
    seed: int

    @classmethod
    def from_environment(cls) -> Self:
        """Read the parameters. Raises ParameterError, which names the first invalid one."""
        epochs = environment.integer("EPOCHS", default=10, at_least=1, at_most=10_000)
        return cls(
            epochs=epochs,
            batch_size=environment.integer("BATCH_SIZE", default=64, at_least=1, at_most=1_000_000),
            lr=environment.positive_number("LR", default=0.05),
            warm_up=environment.integer("WARM_UP", default=0, at_least=0, at_most=1_000_000_000),
            milestones=environment.integers("MILESTONES", at_least=1, at_most=10_000)
            or (math.ceil(epochs / 2), math.ceil(epochs * 3 / 4)),
            momentum=environment.fraction("MOMENTUM", default=0.9),
            weight_decay=environment.fraction("WEIGHT_DECAY", default=5e-4),
            width=environment.integer("WIDTH", default=64, at_least=1, at_most=4096),
            padding=environment.integer("PADDING", default=1, at_least=0, at_most=1024),
            flip=environment.flag("FLIP", default=False),
            top_k=environment.integer("TOP_K", default=3, at_least=1, at_most=1_000_000),
            seed=environment.integer("SEED", default=1, at_least=0, at_most=seeds.LARGEST),
        )

    def rate(self, steps: int, epochs: int) -> float:
        """Return the learning rate after this number of steps and of whole epochs."""
        drops = sum(epochs >= milestone for milestone in self.milestones)
        return self.lr * min(1.0, (steps + 1) / (self.warm_up + 1)) * 0.1**drops


@dataclass(frozen=True)
class Scores:
    """The scores of the model on images that it has not learned from."""

    test_loss: float
    test_accuracy: float
    top_k_accuracy: float


def train(group: Group) -> None:
    """Train on the job's images, evaluate the model on other images after each epoch, and publish it."""
    job, parameters = Job.from_environment(), Parameters.from_environment()
    seeds.seed_everything(parameters.seed)
    with reporting(group) as reporter:
        with staged(group, job.data_uri, reporter) as folder:
            found = data.load(folder)
        if parameters.top_k > found.classes:
            raise ParameterError(f"TOP_K is {parameters.top_k}, but there are {found.classes} classes")
        images, test = found.train.to(group.device), found.test.to(group.device)
        network = resnet18(images.pixels.shape[1], found.classes, parameters.width).to(group.device)
        model = batch_norm.over_group(network)
        history = fit(model, images, test, parameters, group, reporter)
        log.info("test accuracy %.3f on %d images", history[-1].test_accuracy, len(test))
        if group.is_master:
            described = runs.description(job, found, parameters, group, [asdict(each) for each in history])
            with artifacts.publishing(job.model_uri, described, reporter) as target:
                torch.save(model.state_dict(), target / "model.pt")


def fit(
    model: nn.Module, images: Images, test: Images, parameters: Parameters, group: Group, reporter: Reporter
) -> list[Scores]:
    """Train `model` in place. Resume from a checkpoint if there is one. Return the scores of each epoch."""
    steps = steps_of_epoch(len(images), "images", parameters.batch_size, group)
    replica = group.wrap(model)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=parameters.lr,
        momentum=parameters.momentum,
        weight_decay=parameters.weight_decay,
    )
    place = EpochSampler(len(images), group, parameters.seed)
    with checkpoints.kept(group, model, optimizer, place=place) as run:
        history: list[dict[str, float]] = run.values.setdefault("history", [])
        while place.epoch <= parameters.epochs:
            changed = Augmentation(
                len(images),
                seed=parameters.seed,
                epoch=place.epoch,
                padding=parameters.padding,
                flip=parameters.flip,
            )
            replica.train()
            for chosen in BatchSampler(place, parameters.batch_size, drop_last=True):
                numbers = torch.tensor(chosen)
                loss = cross_entropy(
                    replica(changed(images.pixels[numbers], numbers)), images.labels[numbers]
                )
                optimizer.param_groups[0]["lr"] = parameters.rate(run.steps, place.epoch - 1)
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
                place.take(parameters.batch_size)
                # Do not derive this from `steps`: a group of another size may have begun this epoch.
                left = len(place) // parameters.batch_size
                run.step(save=not left)
                reporter.report(
                    step=run.steps,
                    total_steps=run.steps + left + (parameters.epochs - place.epoch) * steps,
                    epoch=place.epoch,
                    total_epochs=parameters.epochs,
                    examples=parameters.batch_size * group.size,
                    loss=loss.item(),
                    lr=optimizer.param_groups[0]["lr"],
                )
            with group.phase("evaluation"):
                scores = evaluated(model, test, parameters.top_k, group)
            if not math.isfinite(scores.test_loss):
                raise TrainingError(f"the loss is not finite in epoch {place.epoch}: try a smaller LR")
            reporter.report(**asdict(scores))
            log.info(
                "epoch %d of %d: test loss %.4f, accuracy %.3f",
                place.epoch, parameters.epochs, scores.test_loss, scores.test_accuracy,
            )  # fmt: skip
            history.append(asdict(scores))
            place.next_epoch()
    return [Scores(**each) for each in history]


@torch.no_grad()
def evaluated(model: nn.Module, test: Images, top_k: int, group: Group) -> Scores:
    """Return the scores of the model on all test images. The group divides the work."""
    model.eval()
    loss, first, among = 0.0, 0, 0
    pixels, labels = test.pixels[group.rank :: group.size], test.labels[group.rank :: group.size]
    for images, classes in zip(torch.split(pixels, _EVALUATED), torch.split(labels, _EVALUATED), strict=True):
        found = model(images)
        loss += cross_entropy(found, classes, reduction="sum").item()
        ranked = found.topk(top_k).indices == classes[:, None]
        first += int(ranked[:, 0].sum())
        among += int(ranked.sum())
    losses, right, in_k = group.total(loss, first, among)
    return Scores(losses / len(test), right / len(test), in_k / len(test))


if __name__ == "__main__":
    process.main(train)
