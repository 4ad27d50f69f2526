"""A rank's parameters as views of one vector, which collectives and optimizers can divide at any element."""

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from language_model.local_part import local


class FlatParameters:
    """The parameters of a rank's part of a model, in one vector.

    The parameters are in reverse order, because a backward pass computes the gradients of the last parameters
    first. If a parameter is divided among tensor ranks, the vector has only the local share.
    """

    @torch.no_grad()
    def __init__(self, model: nn.Module, multiple_of: int) -> None:
        """Replace each parameter of `model` by a view of the vector.

        Zeros make the vector's length a multiple of `multiple_of`.
        """
        parameters = list(model.parameters())[::-1]
        self.size = sum(local(parameter).numel() for parameter in parameters)
        """The number of elements without the zeros."""
        length = -(-self.size // multiple_of) * multiple_of
        self.vector = torch.zeros(length, device=parameters[0].device)
        self._places: dict[Tensor, range] = {}
        start = 0
        for parameter in parameters:
            place = self._places[parameter] = range(start, start := start + local(parameter).numel())
            self.vector[place.start : place.stop].copy_(local(parameter).flatten())
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                view = nn.Parameter(self.view(self.vector, parameter))
                self._places[view] = self._places.pop(parameter)
                module.register_parameter(name, view)

    def place(self, parameter: Tensor) -> range:
        """Return the range of the vector that holds this parameter."""
        return self._places[parameter]

    def view(self, vector: Tensor, parameter: Tensor) -> Tensor:
        """Return a view of the parameter's range of `vector`, in the parameter's shape."""
        place = self._places[parameter]
        part = vector[place.start : place.stop].view(local(parameter).shape)
        if not isinstance(parameter, DTensor):
            return part
        return DTensor.from_local(
            part,
            parameter.device_mesh,
            parameter.placements,
            run_check=False,
            shape=parameter.shape,
            stride=parameter.stride(),
        )
