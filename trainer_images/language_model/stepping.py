"""The step of the optimizer, after the passes have computed gradients."""

from dataclasses import dataclass

from torch.optim import Optimizer

from language_model import data_parallel
from language_model.group_scaler import GroupScaler
from language_model.layout import Layout, uses_ddp
from language_model.mesh import DATA, Mesh
from language_model.model import LanguageModel


@dataclass(frozen=True)
class Stepper:
    """Takes the steps of the optimizer.

    Before each step, it averages the gradients over the data ranks. It leaves this out if the passes or the
    optimizer average the gradients, or if the ranks average weights instead.
    """

    model: LanguageModel
    """This process's part of the model."""
    optimizer: Optimizer
    scaler: GroupScaler
    layout: Layout
    mesh: Mesh

    def step(self, learning_rate: float) -> None:
        """Take a step.

        The data ranks must call this together, unless they average weights. With fp16, all ranks must call it
        together.
        """
        layout = self.layout
        averages = any(
            (
                uses_ddp(layout),
                layout.is_sharded,
                layout.has_flat_buckets,
                layout.is_layer_by_layer,
                layout.averages_weights,
            )
        )
        if self.mesh.size(DATA) > 1 and not averages:
            data_parallel.average_gradients(self.model, self.mesh)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.scaler.step(self.optimizer)
        self.scaler.update()
