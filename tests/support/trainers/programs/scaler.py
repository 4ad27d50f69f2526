"""Trainings in fp16, in which one gradient of one rank is infinite in one step. Returns all steps."""

import os
from typing import Any

import torch
from language_model import data
from language_model.assembly import Learner, assemble
from language_model.layout import Layout
from language_model.memory_meter import parameters_of
from trainer_kit.group import Group

from tests.support.trainers.layouts import TINY
from tests.support.trainers.programs.strategies import blocks
from tests.support.trainers.strategies import PIPELINE, TENSOR

SCALE, GROWTH_INTERVAL = 1024.0, 2
STEPS, POISONED = 6, 4
LAYOUTS: dict[int, dict[str, dict[str, str]]] = {
    1: {"alone": {}},
    2: {"data": {}, "pipeline": PIPELINE, "tensor": TENSOR},
    4: {"pipeline x data": PIPELINE, "pipeline x tensor": {**PIPELINE, **TENSOR}},
}


def main(group: Group) -> dict[str, list[dict[str, Any]]]:
    return {name: train(group, layout) for name, layout in LAYOUTS[group.size].items()}


def train(group: Group, parameters: dict[str, str]) -> list[dict[str, Any]]:
    os.environ |= {**TINY, "PRECISION": "fp16", **parameters}
    layout = Layout.from_environment()
    for name in parameters:
        del os.environ[name]
    learner = assemble(layout, group)
    learner.scaler.load_state_dict({**learner.scaler.state_dict(), "scale": SCALE})
    learner.scaler.set_growth_interval(GROWTH_INTERVAL)
    examples = data.Examples(blocks(), layout.context)
    place = data.Place(len(examples), layout.seed)
    steps = []
    for step in range(1, STEPS + 1):
        before = [weight.clone() for weight in parameters_of(learner.model)]
        hook = poison(learner) if step == POISONED and group.rank == group.size - 1 else None
        loss = learner.learn(examples.batch(place.take(layout.batch_size), group.device), layout.lr, step)
        if hook is not None:
            hook.remove()
        pairs = zip(before, parameters_of(learner.model), strict=True)
        steps.append(
            {
                "loss": group.total(loss)[0],
                "scale": learner.scaler.get_scale(),
                "stepped": not all(torch.equal(one, other) for one, other in pairs),
            }
        )
    return steps


def poison(learner: Learner) -> Any:
    """Make the gradient of the last parameter of this rank infinite. Return the hook that does this."""
    *_, weight = learner.model.parameters()
    return weight.register_hook(  # type: ignore[no-untyped-call]
        lambda gradient: gradient * torch.inf
    )
