"""The shards of a model: even parts of the vector of all weights.

Each shard has its part of the optimizer's state. AdamW and SGD are elementwise, so the updates of all shards
together equal the update of the whole model.
"""

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from language_model.parameter_server import flat

MOMENTS = ("exp_avg", "exp_avg_sq")
"""The parts of AdamW's state that have the shape of the weights. SGD has none."""


class Shard(nn.Module):
    """A part of the weights as one parameter."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights)


def split(vector: Tensor, shards: int) -> tuple[Tensor, ...]:
    """Divide a vector, or a matrix by its columns, into views. Their sizes differ by 1 at most."""
    return vector.tensor_split(shards, dim=-1)


def state_of(model: nn.Module, optimizer: Optimizer) -> Tensor:
    """Return the weights and each moment of the optimizer as the rows of a matrix, on the host."""
    moments = [
        torch.cat(
            [
                optimizer.state[parameter].get(name, torch.zeros_like(parameter)).flatten()
                for parameter in model.parameters()
            ]
        ).cpu()
        for name in _moments(optimizer)
    ]
    return torch.stack([flat.weights_of(model), *moments])


def set_state(model: nn.Module, optimizer: Optimizer, state: Tensor, steps: int) -> None:
    """Set the weights and the optimizer's state from `state`, which was saved after `steps` steps."""
    weights, *moments = state
    flat.set_weights(model, weights)
    for parameter in model.parameters() if moments else ():
        optimizer.state[parameter] = {"step": torch.tensor(float(steps))}
    for name, moment in zip(_moments(optimizer), moments, strict=True):
        for parameter, part in flat.parts(model.parameters(), moment):
            optimizer.state[parameter][name] = part.to(parameter, copy=True)


def _moments(optimizer: Optimizer) -> tuple[str, ...]:
    return MOMENTS if isinstance(optimizer, AdamW) else ()
