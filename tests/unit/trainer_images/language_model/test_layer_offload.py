"""OFFLOAD=layers: the memory of the device does not depend on the number of layers."""

from dataclasses import replace

import pytest
import torch
from language_model import counting, theory
from language_model.assembly import Learner, assemble
from language_model.choices import Offload, Precision
from language_model.counting import StepCost
from language_model.data import Batch
from language_model.layout import Layout
from trainer_kit.group import Group

LAYOUT = Layout(width=32, context=32, batch_size=16)
LAYERED = replace(LAYOUT, offload=Offload.LAYERS)


def learner_of(layout: Layout) -> Learner:
    return assemble(layout, Group(rank=0, size=1, device=torch.device("cpu")))


def batch_of(layout: Layout) -> Batch:
    tokens = torch.randint(
        0, 256, (layout.batch_size, layout.context + 1), generator=torch.Generator().manual_seed(1)
    )
    return Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


def cost_of(layout: Layout) -> StepCost:
    """Return the cost of the second step. The first one also allocates the optimizer's state."""
    learner, batch = learner_of(layout), batch_of(layout)
    learner.learn(batch, layout.lr, step=1)
    with counting.counting(learner) as cost:
        learner.learn(batch, layout.lr, step=2)
    return cost


@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_memory_of_the_device_is_constant_as_layers_grow(micro_batches: int, dropout: float) -> None:
    layouts = [
        replace(LAYERED, layers=layers, micro_batches=micro_batches, dropout=dropout) for layers in (2, 4, 16)
    ]
    peaks = [cost_of(layout).peak_bytes for layout in layouts]
    assert len(set(peaks)) == 1
    assert theory.activations(layouts[0]) == pytest.approx(peaks[0], rel=0.05)


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_the_copied_bytes_are_those_of_the_formula(micro_batches: int) -> None:
    layout = replace(LAYERED, layers=3, micro_batches=micro_batches)
    cost = cost_of(layout)
    assert (cost.to_host_bytes, cost.to_device_bytes) == theory.offloaded(layout)


def test_parameters_gradients_optimizer_and_inputs_of_layers_are_on_the_host() -> None:
    cost = cost_of(LAYERED)
    held = theory.memory(LAYERED)
    everything = held.parameters + held.gradients + held.optimizer
    inputs = (LAYERED.layers + 1) * LAYERED.batch_size * LAYERED.context * LAYERED.width * 4
    assert everything < cost.host_peak_bytes < everything + inputs
    assert cost.peak_bytes < 0.3 * cost_of(LAYOUT).peak_bytes


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16])
def test_the_loss_and_the_weights_are_those_of_a_whole_model(precision: Precision) -> None:
    layout = replace(LAYOUT, precision=precision, dropout=0.1)
    whole, layered = learner_of(layout), learner_of(replace(layout, offload=Offload.LAYERS))
    batch = batch_of(layout)
    tolerance = 1e-5 if precision is Precision.FP32 else 1e-2
    for step in (1, 2, 3):
        expected = whole.learn(batch, layout.lr, step)
        assert layered.learn(batch, layout.lr, step) == pytest.approx(expected, abs=tolerance)
    assert layered.judge(batch) == pytest.approx(whole.judge(batch), abs=tolerance)
    for name, weight in whole.model.named_parameters():
        torch.testing.assert_close(
            layered.model.get_parameter(name).detach(), weight.detach(), atol=tolerance, rtol=0
        )
