"""How many examples a step takes, and how far it goes along their gradient."""

from math import sqrt
from typing import NamedTuple

from language_model.choices import RateScaling
from language_model.layout import Layout


class StepSize(NamedTuple):
    """What one step is to be."""

    batch_size: int
    """Examples that the whole group takes."""
    learning_rate: float


def at_step(step: int, layout: Layout) -> StepSize:
    """The size of step number `step`, from 1.

    The learning rate warms up to that of BATCH_SIZE, and the batch grows where the rate would fall.
    """
    full = scaled(layout.lr, layout.batch_size, layout.reference_batch_size, layout.lr_scaling)
    start = 0.0 if layout.lr_scaling is RateScaling.NONE else layout.lr
    rate = warmed_up(start, full, step, layout.warm_up)
    times = sum(step >= first for first in layout.grow_at)
    return grown(StepSize(layout.batch_size, rate), times, layout.growth, layout.largest_batch_size)


def scaled(rate: float, batch_size: int, reference: int, scaling: RateScaling) -> float:
    """The rate for `batch_size`, where `rate` was found for batches of `reference` examples.

    Linear: k times the examples, k times the rate, so that one step goes as far as k small ones (Goyal et
    al., arXiv:1706.02677, 2017). By the square root: the noise of a step stays the same (Krizhevsky,
    arXiv:1404.5997, 2014), which also suits Adam.
    """
    if scaling is RateScaling.NONE:
        return rate
    times = batch_size / reference
    return rate * (times if scaling is RateScaling.LINEAR else sqrt(times))


def warmed_up(start: float, full: float, step: int, steps: int) -> float:
    """A rate that grows from `start` by the same amount in each of `steps` steps, and then is `full`.

    Goyal et al. start from the rate of the small batch, since the large one's is too much for weights that
    still change fast.
    """
    return start + (full - start) * min(1.0, step / (steps + 1))


def grown(size: StepSize, times: int, growth: int, largest: int) -> StepSize:
    """`size` after the rate was to fall by `growth` so many times (Smith et al., ICLR 2018).

    The batch grows by it instead, which leaves the noise as a falling rate would, in fewer steps; from where
    it would be over `largest` (0: nowhere) the rate falls after all.
    """
    for _ in range(times):
        if largest and size.batch_size * growth > largest:
            size = StepSize(size.batch_size, size.learning_rate / growth)
        else:
            size = StepSize(size.batch_size * growth, size.learning_rate)
    return size
