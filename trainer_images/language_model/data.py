"""Reads the corpus and divides it into the steps of a training run.

The examples of a step depend only on the seed and on the number of examples taken before, not on the number
of processes. So all layouts learn from the same examples.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from trainer_kit import storage
from trainer_kit.errors import DataError

from language_model.corpus import BLOCK

TRAIN_FILE, VALIDATION_FILE = "train.txt", "validation.txt"


class Batch(NamedTuple):
    """Some examples: tokens of shape (examples, context), and, as targets, the token after each of them."""

    tokens: Tensor
    targets: Tensor


def load(uri: str, name: str) -> Tensor:
    """Read the blocks, of shape (blocks, BLOCK), from the file `name` of the folder `uri`, a URI or a path.

    Raises DataError, which names the file, if the file cannot be read, is empty, or has an incomplete block.
    """
    filesystem, folder = storage.locate(uri)
    path = f"{folder}/{name}"
    try:
        content = filesystem.cat_file(path)
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not content or len(content) % BLOCK:
        raise DataError(f"{path}: its size of {len(content)} bytes is not a multiple of {BLOCK}, or is 0")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, BLOCK)


class Examples:
    """The adjacent windows of `context` tokens in a corpus. No window spans two blocks."""

    def __init__(self, blocks: Tensor, context: int) -> None:
        each = (BLOCK - 1) // context
        tokens = blocks[:, : each * context].reshape(-1, context)
        targets = blocks[:, 1 : each * context + 1].reshape(-1, context)
        self._all = Batch(tokens, targets)

    def __len__(self) -> int:
        return len(self._all.tokens)

    def batch(self, numbers: Tensor, device: torch.device) -> Batch:
        """Return the examples with these numbers, on `device`."""
        return Batch(*(half[numbers].to(device, torch.long) for half in self._all))


class Place:
    """The position of a training run in its examples. Each epoch has its own order."""

    def __init__(self, examples: int, seed: int) -> None:
        self._examples = examples
        self._seed = seed
        self.taken = 0
        """The number of examples that the training has taken, over all epochs."""

    def take(self, count: int) -> Tensor:
        """Take the next `count` examples, and return their numbers."""
        numbers = [self._number(position) for position in range(self.taken, self.taken + count)]
        self.taken += count
        return torch.tensor(numbers)

    def _number(self, position: int) -> int:
        epoch, index = divmod(position, self._examples)
        return int(self._order(epoch)[index])

    def _order(self, epoch: int) -> Tensor:
        if self._known_epoch != epoch:
            chance = torch.Generator().manual_seed(self._seed + epoch)
            self._known_epoch, self._known_order = epoch, torch.randperm(self._examples, generator=chance)
        return self._known_order

    _known_epoch = -1
    _known_order: Tensor

    def state_dict(self) -> dict[str, Any]:
        """Return the position, for a checkpoint."""
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position from `state_dict`."""
        self.taken = state["taken"]
