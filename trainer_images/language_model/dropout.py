"""Dropout whose masks do not depend on the layout.

N. Srivastava et al., "Dropout", JMLR 2014. The random numbers are a function of their position (seed, step,
example, layer, place in the layer, element), as in J. Salmon et al., "Parallel Random Numbers: As Easy as 1,
2, 3", SC 2011. The mixing function is that of G. Steele et al., "Fast Splittable Pseudorandom Number
Generators", OOPSLA 2014.

So each rank computes just its part of the masks that a single process would use. Tensor ranks that hold the
same activations get the same mask. Tensor ranks with different heads or parts of the sequence, and different
data ranks, get independent masks. V. Korthikanti et al., 2022, use two generators per rank for this purpose.

The state of the random numbers is the step and the first example of the micro-batch. A recomputation needs
the state of its forward pass, because a pipeline may have started other micro-batches meanwhile.
"""

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor, nn

BITS = 24
"""The number of random bits for each element. The bits are read as a fraction. An element is dropped if its
fraction is smaller than the rate."""
_PIECE = 2**16
"""The number of elements whose random bits are computed together. Meanwhile, each needs 24 bytes."""
_INCREMENT = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


class Position(NamedTuple):
    """The state of the random numbers: the step and the micro-batch that the passes compute."""

    step: int
    """The number of the step, from 1."""
    example: int
    """The number of the micro-batch's first example in the batch of the whole group."""

    def later(self, examples: int) -> "Position":
        """Return the position of the micro-batch that begins `examples` examples later."""
        return Position(self.step, self.example + examples)


class Site(IntEnum):
    """The place of a mask in its layer."""

    EMBEDDING = 0
    SCORES = 1
    ATTENTION = 2
    FEED_FORWARD = 3


class RandomState:
    """The state of the random numbers of one process. Without a position, nothing is dropped."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.position: Position | None = None

    @contextmanager
    def at(self, position: Position | None) -> Iterator[None]:
        """Set the position within the block."""
        before, self.position = self.position, position
        try:
            yield
        finally:
            self.position = before

    def kept(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return the contexts of a forward pass and of its recomputation, for torch.utils.checkpoint.

        The recomputation gets the position that is set now.
        """
        return nullcontext(), self.at(self.position)


class Dropout(nn.Module):
    """Sets numbers to 0 with probability `rate`, and divides the others by 1 - `rate`."""

    def __init__(self, rate: float, state: RandomState, layer: int, site: Site) -> None:
        super().__init__()
        self._rate = rate
        self._state = state
        self._place = (layer, int(site))
        self.share = 0
        """If the second dimension is divided among ranks: the number of this rank's part, from 0."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop numbers of `x`, of shape (examples, positions or heads, ...)."""
        position = self._state.position
        if self._rate == 0 or position is None:
            return x
        # Autograd keeps only the mask, a byte per number.
        return torch.where(self._mask(x, position), x * (1 / (1 - self._rate)), 0.0)

    @torch.no_grad()
    def _mask(self, x: Tensor, position: Position) -> Tensor:
        """Return a mask of the shape of `x`, which is true for the numbers that are kept."""
        mask = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        # The elements of this rank's part of the second dimension are adjacent in the whole example.
        first = self.share * x[0].numel()
        for number, of_example in enumerate(mask.flatten(1)):
            key = _key(self._state.seed, position.step, position.example + number, *self._place)
            for start in range(0, len(of_example), _PIECE):
                piece = of_example[start : start + _PIECE]
                elements = range(first + start, first + start + len(piece))
                torch.ge(random_bits(key, elements, x.device), int(self._rate * 2**BITS), out=piece)
        return mask


def random_bits(key: int, elements: range, device: torch.device) -> Tensor:
    """Return BITS random bits for each element.

    SplitMix64 computes the bits from the key and the element's number.
    """
    bits = torch.arange(elements.start, elements.stop, device=device)
    bits.mul_(_INCREMENT).add_(key)
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        bits.bitwise_xor_(_shifted(bits, shift)).mul_(factor)
    bits.bitwise_xor_(_shifted(bits, 31))
    return _shifted(bits, 64 - BITS)


def _shifted(bits: Tensor, by: int) -> Tensor:
    """Return the bits, shifted to the right and filled with zeros. PyTorch alone would fill with the sign."""
    return (bits >> by).bitwise_and_(2 ** (64 - by) - 1)


def _key(*numbers: int) -> int:
    """Return a signed integer of 64 bits that depends on all the numbers."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
