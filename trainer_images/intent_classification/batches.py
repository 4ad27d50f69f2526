"""Divides the examples among the processes of a group and the steps of an epoch."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from trainer_kit.group import Group
from trainer_kit.sampling import EpochSampler, steps_of_epoch

from intent_classification.model import pack

EVALUATION_BATCH_SIZE = 1024


class Encoded(NamedTuple):
    """An example in the form that the model takes."""

    terms: list[int]
    label: int


class Batch(NamedTuple):
    """Some examples on the device of their process."""

    terms: Tensor
    offsets: Tensor
    """The index of each example's first term."""
    labels: Tensor


def batch_of(examples: Sequence[Encoded], device: torch.device) -> Batch:
    """Return the examples as one batch. There must be at least one example."""
    terms, offsets = pack([example.terms for example in examples], device)
    return Batch(terms, offsets, torch.tensor([example.label for example in examples], device=device))


class _Examples(Dataset[Encoded]):
    """Examples in memory, for PyTorch's samplers and loaders."""

    def __init__(self, examples: Sequence[Encoded]) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Encoded:
        return self._examples[index]


class TrainingBatches:
    """This process's part of the batches of each epoch.

    A step of the group takes `group.size * batch_size` examples. These examples depend only on this product:
    1 process x 64 and 4 processes x 16 take the same examples in the same steps. All parts have the same
    size, so the mean of the processes' gradients is the mean over the examples. The examples of an incomplete
    last step are dropped, different ones in every epoch.
    """

    def __init__(self, examples: Sequence[Encoded], batch_size: int, group: Group, seed: int) -> None:
        self.steps = steps_of_epoch(len(examples), "training examples", batch_size, group)
        """The number of steps in an epoch."""
        self._batch_size = batch_size
        self.place = EpochSampler(len(examples), group, seed)
        self._loader: DataLoader[Encoded] = DataLoader(
            _Examples(examples),
            batch_size,
            sampler=self.place,
            drop_last=True,
            collate_fn=lambda chosen: batch_of(chosen, group.device),
            # A loader draws a random number each time that its iteration begins. A resumed training begins
            # one more iteration. With a generator of its own, the loader does not change the global
            # generator.
            generator=torch.Generator(),
        )

    def rest_of_epoch(self) -> Iterator[Batch]:
        """Yield the remaining batches of this epoch."""
        for batch in self._loader:
            self.place.take(self._batch_size)
            yield batch


def share_of(examples: Sequence[Encoded], group: Group) -> Iterator[Batch]:
    """Yield this process's part of the examples to evaluate. Each example is in exactly one part.

    A DistributedSampler would repeat some examples to make the parts equal, and so count them twice.
    """
    own = examples[group.rank :: group.size]
    for start in range(0, len(own), EVALUATION_BATCH_SIZE):
        yield batch_of(own[start : start + EVALUATION_BATCH_SIZE], group.device)
