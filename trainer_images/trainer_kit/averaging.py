"""The parameters with which a group averages gradients: the size of buckets, and the compression.

This module does not need PyTorch, so admission can apply the same rules as the training.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from trainer_kit import environment


class Compression(StrEnum):
    """The compression of gradients before sending."""

    NONE = "none"
    FP16 = "fp16"
    """Half of the bytes. Gradients above 65,504 become infinite."""
    BF16 = "bf16"
    """Half of the bytes, with the range of fp32 and 8 bits of precision."""
    POWERSGD = "powersgd"
    """Two factors of low rank instead of a matrix, if this saves more than half of the bytes (Vogels et al.,
    NeurIPS 2019)."""


@dataclass(frozen=True)
class Averaging:
    """The parameters with which a group averages gradients."""

    bucket_mb: int | None = None
    """The size in MiB of a bucket of gradients, which are averaged together. None: 25, but 1 for the first
    bucket."""
    compression: Compression = Compression.NONE
    powersgd_rank: int = 1
    powersgd_start: int = 2
    """The number of steps before PowerSGD starts to compress. PyTorch requires two or more."""
    seed: int = 0
    """The seed of PowerSGD's first factors. It must be the same in all processes."""

    @classmethod
    def from_environment(cls) -> Self:
        """Read the variables. Raises ParameterError, which names the first invalid one."""
        return cls(
            bucket_mb=environment.integer("BUCKET_MB", 0, at_least=1, at_most=10_000) or None,
            compression=environment.choice("GRADIENT_COMPRESSION", Compression, Compression.NONE),
            powersgd_rank=environment.integer("POWERSGD_RANK", cls.powersgd_rank, at_least=1, at_most=1024),
            powersgd_start=environment.integer(
                "POWERSGD_START", cls.powersgd_start, at_least=2, at_most=1_000_000_000
            ),
        )


def sent_bytes(shapes: Iterable[Iterable[int]], ranks: int, averaging: Averaging) -> float:
    """Return, by a formula, the bytes that each of `ranks` processes sends in a step.

    With PowerSGD, this holds for steps with compression, so after the first `powersgd_start` steps.
    `shapes` are the shapes of the trained parameters, which are in fp32. To sum S bytes over n processes,
    each process sends 2(n-1)/n S bytes, as in a ring. No method needs fewer bytes (Patarasuk and Yuan, 2009).
    PowerSGD of rank r sums r (a + b) numbers in place of a matrix of a x b, if these are fewer than half of
    the matrix's a b numbers.
    """
    numbers = sum(_numbers(shape, averaging) for shape in shapes)
    width = 2 if averaging.compression in (Compression.FP16, Compression.BF16) else 4
    return 2 * (ranks - 1) / ranks * numbers * width


def _numbers(shape: Iterable[int], averaging: Averaging) -> int:
    rows, *rest = [*shape] or [1]
    columns = math.prod(rest)
    if averaging.compression is Compression.POWERSGD:
        rank = min(rows, columns, averaging.powersgd_rank)
        if 2 * rank * (rows + columns) < rows * columns:
            return rank * (rows + columns)
    return rows * columns
