"""The versions of weights that batches in flight need."""

import torch
from language_model.weight_versions import WeightVersions
from torch import nn
from torch.utils.checkpoint import checkpoint


class Recomputed(nn.Module):
    """Computes a product again in its backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = checkpoint(lambda x: self.inner(x).tanh(), x, use_reentrant=False)
        return hidden


def update(model: nn.Module, versions: WeightVersions) -> None:
    versions.begin_update()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)


def test_both_passes_of_a_batch_use_the_same_weights() -> None:
    torch.manual_seed(1)
    for model in (nn.Linear(3, 3, bias=False), Recomputed()):
        x = torch.randn(2, 3)
        model(x).square().sum().backward()
        [expected] = [
            parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
        ]
        model.zero_grad()

        versions = WeightVersions(model)
        version = versions.hold()
        with version.in_use():
            result = model(x).square().sum()
        update(model, versions)
        with version.in_use():
            result.backward()
        versions.take_gradients(version)
        [parameter] = model.parameters()
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, expected)


def test_the_model_has_its_own_parameters_again_after_a_use() -> None:
    model = nn.Linear(3, 3)
    before = list(model.parameters())
    versions = WeightVersions(model)
    with versions.hold().in_use():
        assert all(one is not other for one, other in zip(model.parameters(), before, strict=True))
    assert all(one is other for one, other in zip(model.parameters(), before, strict=True))


def test_there_are_as_many_copies_as_earlier_versions_in_use() -> None:
    model = nn.Linear(3, 3, bias=False)
    versions = WeightVersions(model)
    held = []
    for number in range(4):
        held.append(versions.hold())
        assert len(versions.stashed) == number
        update(model, versions)
    addresses = {tensor.data_ptr() for tensor in (*versions.stashed, *model.parameters())}
    assert len(addresses) == 5
    assert [version.number for version in held] == [0, 1, 2, 3]
    versions.take_gradients(held[0])
    assert len(versions.stashed) == 3


def test_weights_that_no_batch_uses_are_changed_in_place() -> None:
    model = nn.Linear(3, 3, bias=False)
    versions = WeightVersions(model)
    address = model.weight.data_ptr()
    versions.take_gradients(versions.hold())
    update(model, versions)
    assert model.weight.data_ptr() == address
    assert versions.stashed == []
