"""The shards of a model: even parts of the vector of all weights, each with its part of AdamW's state.

AdamW is elementwise, so the update of the shards is that of the whole model.
"""

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from language_model.parameter_server import flat

MOMENTS = ("exp_avg", "exp_avg_sq")
"""The parts of AdamW's state that have the shape of the weights."""


class Shard(nn.Module):
    """A part of the weights as one parameter."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights)


def split(vector: Tensor, shards: int) -> tuple[Tensor, ...]:
    """Return views of the shards of a vector, or of each row of a matrix. Their sizes differ by 1 at most."""
    return vector.tensor_split(shards, dim=-1)


def state_of(model: nn.Module, optimizer: Optimizer) -> Tensor:
    """Return the weights and the moments of AdamW, on the host: one row each."""
    moments = [
        torch.cat(
            [
                optimizer.state[parameter].get(name, torch.zeros_like(parameter)).flatten()
                for parameter in model.parameters()
            ]
        ).cpu()
        for name in MOMENTS
    ]
    return torch.stack([flat.weights_of(model), *moments])


def set_state(model: nn.Module, optimizer: Optimizer, state: Tensor, steps: int) -> None:
    """Set the weights and the state of AdamW after `steps` steps."""
    weights, *moments = state
    flat.set_weights(model, weights)
    for parameter in model.parameters():
        optimizer.state[parameter] = {"step": torch.tensor(float(steps))}
    for name, moment in zip(MOMENTS, moments, strict=True):
        for parameter, part in flat.parts(model.parameters(), moment):
            optimizer.state[parameter][name] = part.to(parameter, copy=True)
