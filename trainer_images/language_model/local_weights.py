"""Local weights: each data rank steps with its own gradients, and all ranks average their weights from time
to time.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017;
Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019. The moments of AdamW are averaged, too,
as Yu et al., ICML 2019, do with momentum. So all ranks are equal after an average, and a checkpoint has one
copy.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from trainer_kit import gradient_hooks

from language_model.mesh import DATA, Mesh


class LocalWeights:
    """The weights of a rank, and the schedule of their averages."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, mesh: Mesh, every: int) -> None:
        """`every` is the number of steps between two averages (LOCAL_STEPS)."""
        self._model = model
        self._optimizer = optimizer
        self._mesh = mesh
        self._every = every
        self._differ = False

    def stepped(self, step: int) -> None:
        """Average after the step with this number, from 1, if it is the last one of its round."""
        self.changed()
        if step % self._every == 0:
            self.average()

    def changed(self) -> None:
        """Record that this rank's weights may differ from the weights of other ranks."""
        self._differ = True

    def average(self) -> None:
        """Make the weights and moments of all ranks equal, unless they are. Every rank must call this."""
        if not self._differ:
            return
        ranks = self._mesh.along(DATA)
        tensors = [*(parameter.detach() for parameter in self._model.parameters()), *self._moments()]
        together = torch.cat([tensor.flatten() for tensor in tensors]).div_(ranks.size())
        gradient_hooks.count(together.nbytes)
        dist.all_reduce(together, group=ranks.get_group())
        parts = torch.split(together, [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))
        self._differ = False

    def _moments(self) -> list[Tensor]:
        states = (self._optimizer.state.get(parameter, {}) for parameter in self._model.parameters())
        return [
            value for state in states for value in state.values() if isinstance(value, Tensor) and value.dim()
        ]
