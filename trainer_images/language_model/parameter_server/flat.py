"""The weights or the gradients of a model as one vector on the host, for sending."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def weights_of(model: nn.Module) -> Tensor:
    """Return a copy of the model's parameters as one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).cpu()


def gradient_of(model: nn.Module) -> Tensor:
    """Return a copy of the gradients as one vector, with zeros for parameters without a gradient."""
    return torch.cat(
        [
            (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).flatten()
            for parameter in model.parameters()
        ]
    ).cpu()


@torch.no_grad()
def set_weights(model: nn.Module, weights: Tensor) -> None:
    """Set the model's parameters to the parts of `weights`."""
    for parameter, part in parts(model.parameters(), weights):
        parameter.copy_(part)


def set_gradient(model: nn.Module, gradient: Tensor) -> None:
    """Set the gradients of the model's parameters to the parts of `gradient`."""
    for parameter, part in parts(model.parameters(), gradient):
        parameter.grad = part.to(parameter)


def parts(parameters: Iterable[nn.Parameter], vector: Tensor) -> Iterable[tuple[nn.Parameter, Tensor]]:
    """Return each parameter with its part of the vector."""
    own = list(parameters)
    pieces = torch.split(vector, [parameter.numel() for parameter in own])
    return ((parameter, piece.view_as(parameter)) for parameter, piece in zip(own, pieces, strict=True))
