"""Learns features of images without labels, as one process or as a group.

Run it as `python -m image_classification.embed`. The features of two changed copies of an image become more
like each other than like those of other images. The other images are those of the same step in all processes
(SimCLR), or images of earlier steps (MoCo). See `trainer_kit.contrast`. Labels are used only to judge the
features after each epoch.
"""

import copy
import logging
import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.data import BatchSampler
from trainer_kit import artifacts, batch_norm, checkpoints, contrast, environment, process, seeds
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
    momentum: float
    weight_decay: float
    width: int
    """The number of channels of the first stage."""
    embedding: int
    """The length of the vector of an image. The loss compares these vectors."""
    temperature: float
    queue: int
    """The number of keys (vectors of earlier images) that serve as negatives.

    0: the other images of the step serve as negatives.
    """
    key_momentum: float
    """The weight of the key encoder, which computes the keys, in a mean with the encoder that learns.

    After each step, this mean replaces the key encoder. Used only with a queue.
    """
    padding: int
    """The largest number of pixels by which an image is shifted."""
    flip: bool
    """Whether about half of the images are mirrored."""
    noise: float
    """The standard deviation of the noise that is added to each pixel, relative to that of all pixels."""
    seed: int

    @classmethod
    def from_environment(cls) -> Self:
        """Read the parameters. Raises ParameterError, which names the first invalid one."""
        return cls(
            epochs=environment.integer("EPOCHS", default=10, at_least=1, at_most=10_000),
            batch_size=environment.integer("BATCH_SIZE", default=64, at_least=1, at_most=1_000_000),
            lr=environment.positive_number("LR", default=0.05),
            momentum=environment.fraction("MOMENTUM", default=0.9),
            weight_decay=environment.fraction("WEIGHT_DECAY", default=5e-4),
            width=environment.integer("WIDTH", default=64, at_least=1, at_most=4096),
            embedding=environment.integer("EMBEDDING", default=64, at_least=2, at_most=4096),
            temperature=environment.positive_number("TEMPERATURE", default=0.2),
            queue=environment.integer("QUEUE", default=0, at_least=0, at_most=1_000_000),
            key_momentum=environment.fraction("KEY_MOMENTUM", default=0.99),
            padding=environment.integer("PADDING", default=1, at_least=1, at_most=1024),
            flip=environment.flag("FLIP", default=False),
            noise=environment.fraction("NOISE", default=0.5),
            seed=environment.integer("SEED", default=1, at_least=0, at_most=seeds.LARGEST),
        )


class Embedder(nn.Module):
    """The network of the features, and their projection to the vectors that the loss compares (SimCLR)."""

    def __init__(self, channels: int, parameters: Parameters) -> None:
        """`channels` is the number of channels of the images."""
        super().__init__()
        count = 8 * parameters.width  # the channels of the last stage
        network = resnet18(channels, count, parameters.width)
        assert isinstance(network, nn.Sequential)
        self.features = network[:-1]
        self.projection = nn.Sequential(network[-1], nn.ReLU(), nn.Linear(count, parameters.embedding))

    def forward(self, images: Tensor) -> Tensor:
        """Return the vectors of N images, of shape N x `embedding`."""
        embedded: Tensor = self.projection(self.features(images))
        return embedded


class Learner(nn.Module):
    """The state in a checkpoint: the encoder that learns and, with a queue, the keys and their encoder."""

    def __init__(self, channels: int, parameters: Parameters) -> None:
        """`channels` is the number of channels of the images."""
        super().__init__()
        self.encoder = batch_norm.over_group(Embedder(channels, parameters))
        self.key_encoder = copy.deepcopy(self.encoder).requires_grad_(False) if parameters.queue else None
        self.queue = contrast.Queue(parameters.queue, parameters.embedding) if parameters.queue else None
        self._settings = parameters

    def loss(self, replica: nn.Module, first: Tensor, second: Tensor) -> Tensor:
        """Return the loss of two changed copies of the same images.

        `replica` is the encoder as `group.wrap` returns it.

        With a queue, the keys of the second copies are added to the queue. Every rank must call this method.
        """
        temperature = self._settings.temperature
        if self.queue is None or self.key_encoder is None:
            one, other = replica(torch.cat([first, second])).chunk(2)
            return (
                contrast.info_nce(one, other, temperature=temperature)
                + contrast.info_nce(other, one, temperature=temperature)
            ) / 2
        queries = replica(first)
        with torch.no_grad():
            keys = self.key_encoder(second)
        loss = contrast.info_nce(queries, keys, self.queue.keys(), temperature=temperature)
        self.queue.put(keys)
        return loss

    @property
    def features(self) -> nn.Module:
        """The part of the encoder that computes the features."""
        found = self.encoder.features
        assert isinstance(found, nn.Module)
        return found

    def follow(self) -> None:
        """After a step, let the encoder of the keys follow the encoder that learns.

        Without a queue, do nothing.
        """
        if self.key_encoder is not None:
            contrast.follow(self.key_encoder, self.encoder, momentum=self._settings.key_momentum)


def train(group: Group) -> None:
    """Learn from the job's images, judge the features after each epoch, and publish the network."""
    job, parameters = Job.from_environment(), Parameters.from_environment()
    if 0 < parameters.queue < parameters.batch_size * group.size:
        raise ParameterError(
            f"QUEUE is {parameters.queue}, but must be 0 or at least the images of a step: BATCH_SIZE "
            f"{parameters.batch_size} x {group.size} processes = {parameters.batch_size * group.size}"
        )
    seeds.seed_everything(parameters.seed)
    with reporting(group) as reporter:
        with staged(group, job.data_uri, reporter) as folder:
            found = data.load(folder)
        images, test = found.train.to(group.device), found.test.to(group.device)
        learner = Learner(images.pixels.shape[1], parameters).to(group.device)
        history = fit(learner, images, test, parameters, group, reporter)
        log.info("class accuracy %.3f on %d images", history[-1]["class_accuracy"], len(test))
        if group.is_master:
            described = runs.description(job, found, parameters, group, history)
            with artifacts.publishing(job.model_uri, described, reporter) as target:
                torch.save(learner.encoder.state_dict(), target / "model.pt")


def fit(
    learner: Learner, images: Images, test: Images, parameters: Parameters, group: Group, reporter: Reporter
) -> list[dict[str, float]]:
    """Train `learner` in place. Resume from a checkpoint if there is one. Return each epoch's metrics."""
    steps = steps_of_epoch(len(images), "images", parameters.batch_size, group)
    replica = group.wrap(learner.encoder)
    optimizer = torch.optim.SGD(
        learner.encoder.parameters(),
        lr=parameters.lr,
        momentum=parameters.momentum,
        weight_decay=parameters.weight_decay,
    )
    place = EpochSampler(len(images), group, parameters.seed)
    with checkpoints.kept(group, learner, optimizer, place=place) as run:
        history: list[dict[str, float]] = run.values.setdefault("history", [])
        while place.epoch <= parameters.epochs:
            first, second = (Copies(len(images), parameters, place.epoch, number) for number in (0, 1))
            learner.train()
            for chosen in BatchSampler(place, parameters.batch_size, drop_last=True):
                numbers = torch.tensor(chosen)
                pixels = images.pixels[numbers]
                loss = learner.loss(replica, first(pixels, numbers), second(pixels, numbers))
                if not math.isfinite(loss.item()):
                    raise TrainingError(f"the loss is not finite in step {run.steps + 1}: try a smaller LR")
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
                learner.follow()
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
                )
            with group.phase("evaluation"):
                accuracy = class_accuracy(learner.features, images, test, group)
            reporter.report(class_accuracy=accuracy)
            log.info("epoch %d of %d: class accuracy %.3f", place.epoch, parameters.epochs, accuracy)
            history.append({"class_accuracy": accuracy})
            place.next_epoch()
    return history


class Copies:
    """The first changed copies of all images in an epoch (`number` 0), or the second ones (1)."""

    def __init__(self, count: int, parameters: Parameters, epoch: int, number: int) -> None:
        """`count` is the number of images."""
        self._parameters, self._epoch = parameters, 2 * epoch + number
        self._shifted = Augmentation(
            count,
            seed=parameters.seed,
            epoch=self._epoch,
            padding=parameters.padding,
            flip=parameters.flip,
        )

    def __call__(self, images: Tensor, examples: Tensor) -> Tensor:
        """Return the changed copies of N x C x H x W images.

        `examples` has the N indices of these images among all images.

        Like the other changes, the noise of an example is the same in each run with the same seed.
        """
        noise = np.stack(
            [
                np.random.default_rng([self._parameters.seed, self._epoch, example]).standard_normal(
                    images.shape[1:], dtype=np.float32
                )
                for example in examples.tolist()
            ]
        )
        added = torch.from_numpy(noise).to(images) * self._parameters.noise
        return self._shifted(images, examples) + added


@torch.no_grad()
def class_accuracy(features: nn.Module, images: Images, test: Images, group: Group) -> float:
    """Return the share of test images whose features are nearest to the mean of their own class.

    The mean of a class is taken over the features of its training images. The group divides the work.
    Features are compared by the cosine.
    """
    features.eval()
    classes = int(torch.cat([images.labels, test.labels]).max()) + 1

    def own(split: Images) -> tuple[Tensor, Tensor]:
        pixels, labels = split.pixels[group.rank :: group.size], split.labels[group.rank :: group.size]
        parts = [normalize(features(part), dim=1) for part in torch.split(pixels, _EVALUATED)]
        return torch.cat(parts), labels

    found, labels = own(images)
    sums = found.new_zeros(classes, found.shape[1]).index_add_(0, labels, found)
    means = contrast.gathered(sums.view(1, -1)).sum(0).view_as(sums)
    found, labels = own(test)
    right = (found @ normalize(means, dim=1).T).argmax(1) == labels
    [count] = group.total(int(right.sum()))
    return count / len(test)


if __name__ == "__main__":
    process.main(train)
