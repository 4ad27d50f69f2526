"""OFFLOAD=layers: the device holds only one layer and its activations for one micro-batch.

B. Pudipeddi et al., "Training Large Neural Networks with Constant Memory using a New Execution Algorithm",
2020 (L2L): all micro-batches pass through one layer before the next layer is copied to the device. The
inputs of layers wait on the host. The backward pass recomputes each layer from its inputs. The optimizer
steps on the host. Copies do not overlap with computing.
"""

from collections.abc import Callable, Mapping
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call

from language_model.data import Batch
from language_model.dropout import Position
from language_model.host import Host
from language_model.layout import Layout
from language_model.mesh import DATA, Mesh
from language_model.model import LanguageModel, loss_of
from language_model.passes import Context, number_in

Compute = Callable[[Tensor], Tensor]


class LayerByLayer:
    """The passes of a model that is kept on the host. The device computes one layer after another."""

    def __init__(
        self, model: LanguageModel, layout: Layout, mesh: Mesh, host: Host, context: Context
    ) -> None:
        """`model` is on the host."""
        self._model = model
        self._micro_batches = layout.micro_batches
        self._ranks = mesh.along(DATA) if mesh.size(DATA) > 1 else None
        self._host = host
        self._context = context

    def learn(self, batch: Batch, position: Position) -> float:
        parts = [half.chunk(self._micro_batches) for half in batch]
        tokens, targets = (list(part) for part in parts)
        positions = [position.later(len(tokens[0]) * number) for number in range(len(tokens))]
        embedding, layers, head = self._modules()
        inputs = [self._forward(embedding, tokens, positions)]
        for layer in layers:
            inputs.append(self._forward(layer, inputs[-1], positions))
        losses: list[float] = []

        def loss(scores: Tensor, number: int) -> Tensor:
            mean = loss_of(scores, targets[number]) / len(targets)
            losses.append(number_in(mean))
            return mean

        gradients = self._backward(head, inputs.pop(), positions, loss)
        for layer in reversed(layers):
            gradients = self._backward(layer, inputs.pop(), positions, gradients)
        self._backward(embedding, tokens, positions, gradients)
        return sum(losses)

    @torch.no_grad()
    def judge(self, batch: Batch) -> float:
        embedding, layers, head = self._modules()
        x = batch.tokens
        with self._context():
            for module in (embedding, *layers, head):
                x = functional_call(module, self._given(module), (x,))
            return number_in(loss_of(x, batch.targets))

    def _modules(self) -> tuple[nn.Module, list[nn.Module], nn.Module]:
        model = self._model
        assert model.embedding is not None
        assert model.head is not None
        return model.embedding, list(model.layers.values()), model.head

    @torch.no_grad()
    def _forward(self, module: nn.Module, inputs: list[Tensor], positions: list[Position]) -> list[Tensor]:
        """Return the outputs of the module for all micro-batches. They are on the host."""
        weights = self._given(module)
        outputs = []
        for x, position in zip(inputs, positions, strict=True):
            with self._context(), self._model.random_state.at(position):
                outputs.append(self._host.take(functional_call(module, weights, (self._on_device(x),))))
        return outputs

    def _backward(
        self,
        module: nn.Module,
        inputs: list[Tensor],
        positions: list[Position],
        after: list[Tensor] | Callable[[Tensor, int], Tensor],
    ) -> list[Tensor]:
        """Recompute the module, and set its gradients. Return the gradients of the inputs, on the host.

        Inputs that are tokens have no gradients. `after` has the gradients of the outputs, or is a function
        that computes the loss of the outputs. The inputs are removed from `inputs`, to free their memory.
        """
        weights = {name: weight.requires_grad_() for name, weight in self._given(module).items()}
        gradients: list[Tensor] = []
        for number, position in enumerate(positions):
            x = self._on_device(inputs[number])
            inputs[number] = torch.empty(0)
            if x.is_floating_point():
                x.requires_grad_()
            with self._context(), self._model.random_state.at(position):
                output = functional_call(module, weights, (x,))
                result = after(output, number) if callable(after) else output
            del output
            last = None if callable(after) else self._host.give(after[number])
            torch.autograd.backward(result, last)
            del result, last
            if x.grad is not None:
                gradients.append(self._host.take(x.grad))
            del x
        self._keep_gradients(module, weights)
        return gradients

    def _keep_gradients(self, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """Average the gradients of a module over the data ranks, and move them to the host."""
        for name, parameter in module.named_parameters():
            gradient = cast(Tensor, weights[name].grad)
            if self._ranks is not None:
                gradient /= self._ranks.size()
                dist.all_reduce(gradient, group=self._ranks.get_group())
            parameter.grad = self._host.take(gradient)

    def _given(self, module: nn.Module) -> dict[str, Tensor]:
        """Copy a module's weights to the device. Return the copies by name."""
        return {name: self._host.give(weight) for name, weight in module.named_parameters()}

    def _on_device(self, x: Tensor) -> Tensor:
        return self._host.give(x) if self._host.holds(x) else x
