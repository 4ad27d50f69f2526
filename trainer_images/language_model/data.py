"""Reading the corpus, and sharing it out to the steps of a training.

Which examples a step takes depends on the seed and on how many were taken before it, never on how many
processes there are: a layout changes nothing of what is learned.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from trainer_kit import storage
from trainer_kit.errors import DataError

from language_model.corpus import BLOCK

TRAIN_FILE, VALIDATION_FILE = "train.txt", "validation.txt"


class Batch(NamedTuple):
    """Some examples: tokens (examples x context), and for each the token that comes next."""

    tokens: Tensor
    targets: Tensor


def load(uri: str, name: str) -> Tensor:
    """The blocks (blocks x BLOCK bytes) in the file `name` of the folder `uri`, any fsspec URI or a path.

    Raises DataError, naming the file, when it is missing or is no row of whole blocks.
    """
    filesystem, folder = storage.locate(uri)
    path = f"{folder}/{name}"
    try:
        content = filesystem.cat_file(path)
    except FileNotFoundError as error:
        raise DataError(f"there is no {path}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not content or len(content) % BLOCK:
        raise DataError(f"{path}: {len(content)} bytes are no row of blocks of {BLOCK} bytes")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, BLOCK)


class Examples:
    """The windows of `context` tokens that a corpus holds, side by side; none crosses from block to block."""

    def __init__(self, blocks: Tensor, context: int) -> None:
        each = (BLOCK - 1) // context
        tokens = blocks[:, : each * context].reshape(-1, context)
        targets = blocks[:, 1 : each * context + 1].reshape(-1, context)
        self._all = Batch(tokens, targets)

    def __len__(self) -> int:
        return len(self._all.tokens)

    def batch(self, numbers: Tensor, device: torch.device) -> Batch:
        """The examples of these numbers."""
        return Batch(*(half[numbers].to(device, torch.long) for half in self._all))


class Place:
    """How far a training has come in its examples, epoch after epoch, each in an order of its own."""

    def __init__(self, examples: int, seed: int) -> None:
        self._examples = examples
        self._seed = seed
        self.taken = 0
        """How many examples the training has taken, over all epochs."""

    def take(self, count: int) -> Tensor:
        """The numbers of the next `count` examples."""
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
        """The place."""
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to the place that `state_dict` gave."""
        self.taken = state["taken"]
