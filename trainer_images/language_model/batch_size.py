"""The batch size and learning rate of each step."""

from math import sqrt
from typing import NamedTuple

from language_model.choices import RateScaling
from language_model.layout import Layout


class StepSize(NamedTuple):
    """The batch size and the learning rate of one step."""

    batch_size: int
    """The number of examples of the whole group."""
    learning_rate: float


def at_step(step: int, layout: Layout) -> StepSize:
    """Return the batch size and the learning rate of step number `step`, counted from 1.

    During the warm-up, the learning rate approaches its full value: LR, scaled to BATCH_SIZE by the rule
    LR_SCALING. At each of the steps GROW_AT, the batch grows. Most training lets the learning rate decay at
    such steps instead; see `grown`.
    """
    full = scaled(layout.lr, layout.batch_size, layout.reference_batch_size, layout.lr_scaling)
    start = 0.0 if layout.lr_scaling is RateScaling.NONE else layout.lr
    rate = warmed_up(start, full, step, layout.warm_up)
    times = sum(step >= first for first in layout.grow_at)
    return grown(StepSize(layout.batch_size, rate), times, layout.growth, layout.largest_batch_size)


def scaled(rate: float, batch_size: int, reference: int, scaling: RateScaling) -> float:
    """Scale `rate`, which was found for batches of `reference` examples, to `batch_size`.

    Linear scaling: k times the examples get k times the rate, so one step changes the weights about as much
    as k steps with small batches (Goyal et al., arXiv:1706.02677, 2017). Square root scaling keeps the noise
    of a step the same (Krizhevsky, arXiv:1404.5997, 2014), and also suits Adam.
    """
    if scaling is RateScaling.NONE:
        return rate
    times = batch_size / reference
    return rate * (times if scaling is RateScaling.LINEAR else sqrt(times))


def warmed_up(start: float, full: float, step: int, steps: int) -> float:
    """Return the rate of step number `step`, counted from 1.

    The first `steps` steps have evenly spaced rates between `start` and `full`. All later steps have the rate
    `full`.

    Goyal et al. start from the rate of the small batch, because the rate of the large batch is too high while
    the weights change fast.
    """
    return start + (full - start) * min(1.0, step / (steps + 1))


def grown(size: StepSize, times: int, growth: int, largest: int) -> StepSize:
    """Return `size` after `times` changes by the factor `growth` (Smith et al., ICLR 2018).

    Usually, a change divides the rate. Here, a change multiplies the batch size instead: the noise falls in
    the same way, with fewer steps. If the batch would exceed `largest` (0: no limit), the rate is divided.
    """
    for _ in range(times):
        if largest and size.batch_size * growth > largest:
            size = StepSize(size.batch_size, size.learning_rate / growth)
        else:
            size = StepSize(size.batch_size * growth, size.learning_rate)
    return size
