"""OFFLOAD=activations: saved tensors of autograd are on the host until the backward pass needs them."""

from collections.abc import Callable

import torch
from language_model.activation_offload import offloaded
from language_model.host import Host
from torch import Tensor, nn
from torch.nn import functional

CPU = torch.device("cpu")
FLOAT = 4


def bytes_moved(model: nn.Module, compute: Callable[[Tensor], Tensor], x: Tensor) -> tuple[int, int]:
    host = Host(CPU)
    with offloaded(model, host):
        torch.autograd.backward(compute(x).sum())
    return host.bytes_in, host.bytes_out


def test_inputs_of_products_move_and_parameters_stay() -> None:
    model = nn.Linear(8, 3, bias=False)
    assert bytes_moved(model, model, torch.ones(5, 8)) == (5 * 8 * FLOAT, 5 * 8 * FLOAT)


def test_tokens_stay() -> None:
    model = nn.Embedding(10, 4)
    assert bytes_moved(model, model, torch.zeros(5, dtype=torch.long)) == (0, 0)


def test_memory_that_several_operations_save_is_copied_once() -> None:
    model = nn.Linear(8, 8, bias=False)

    def twice(x: Tensor) -> Tensor:
        result: Tensor = model(x) + model(x.view(5, 8)) + functional.softmax(x.requires_grad_(), -1) * x
        return result

    # All three products save the input; the softmax and the last product save the result of the softmax.
    assert bytes_moved(model, twice, torch.ones(5, 8)) == (2 * 5 * 8 * FLOAT, 2 * 5 * 8 * FLOAT)


def test_gradients_are_those_without_it() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 1))
    x = torch.randn(5, 8)
    torch.autograd.backward(model(x).sum())
    expected = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    bytes_moved(model, model, x)
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert torch.equal(parameter.grad, gradient)  # type: ignore[arg-type]
