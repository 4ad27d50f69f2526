"""How many examples a step takes, and how far it goes along their gradient."""

from typing import NamedTuple

from language_model.layout import Layout


class StepSize(NamedTuple):
    """What one step is to be."""

    batch_size: int
    """Examples that the whole group takes."""
    learning_rate: float


def at_step(step: int, layout: Layout) -> StepSize:
    """The size of step number `step`, from 1: BATCH_SIZE examples, and LR after WARM_UP steps towards it."""
    return StepSize(layout.batch_size, layout.lr * min(1.0, step / (layout.warm_up + 1)))
