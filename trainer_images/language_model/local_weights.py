"""Local weights: each data rank steps with its own gradients, and all ranks average their weights from time
to time.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017;
Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019. The moments of AdamW are averaged, too,
as Yu et al., ICML 2019, do with momentum. After an average, all ranks have the same weights and moments, so
a checkpoint has only one copy.

Slow momentum: the averages have a momentum of their own. A round moves the mean of the weights from x by d.
The momentum becomes m = β m + d, and the next round starts from x + m. This is the method of Wang et al.,
"SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum", ICLR 2020, with a slow
learning rate of 1. (They divide d by the learning rate, which changes nothing if the rate is constant.)
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.optim import Optimizer
from trainer_kit import gradient_hooks

from language_model.mesh import DATA, Mesh
from language_model.parameter_server import flat


class LocalWeights:
    """The weights of a rank, and the schedule of their averages."""

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, mesh: Mesh, every: int, slow_momentum: float
    ) -> None:
        """`every`: the number of steps between two averages (LOCAL_STEPS). `slow_momentum`: β."""
        self._model = model
        self._optimizer = optimizer
        self._mesh = mesh
        self._every = every
        self._slow_momentum = slow_momentum
        self._differ = False
        self._start: Tensor | None = None
        """The weights at the start of the round, if there is slow momentum."""
        self._momentum: Tensor | None = None
        """The slow momentum m; None before the first average."""

    def begin_step(self) -> None:
        """Keep a copy of the weights if the next step begins a round, and if there is slow momentum."""
        if self._slow_momentum and not self._differ:
            self._start = parameters_to_vector(self._model.parameters()).detach()

    def stepped(self, step: int) -> None:
        """Average after step number `step`, counted from 1, if it is the last step of its round."""
        self.changed()
        if step % self._every == 0:
            self.average()

    def changed(self) -> None:
        """Record that this rank's weights may differ from the weights of other ranks."""
        self._differ = True

    def average(self) -> None:
        """Average the weights and moments over all ranks, if this rank has stepped since the last average.

        Every rank must call this. Either all ranks or none must have stepped.
        """
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
        self._add_momentum()
        self._differ = False

    def _add_momentum(self) -> None:
        if self._start is None:
            return
        moved = parameters_to_vector(self._model.parameters()).detach() - self._start
        self._momentum = (
            moved if self._momentum is None else moved.add(self._momentum, alpha=self._slow_momentum)
        )
        flat.set_weights(self._model, self._start + self._momentum)
        self._start = None

    def state_dict(self) -> dict[str, Any]:
        """Return the slow momentum, which is the same in all ranks."""
        return {"momentum": self._momentum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the slow momentum from `state_dict`."""
        momentum = state["momentum"]
        self._momentum = None if momentum is None else momentum.to(next(self._model.parameters()).device)

    def _moments(self) -> list[Tensor]:
        states = (self._optimizer.state.get(parameter, {}) for parameter in self._model.parameters())
        return [
            value for state in states for value in state.values() if isinstance(value, Tensor) and value.dim()
        ]
