"""Trains a tiny model in each of the layouts that the variable LAYOUTS names, one after the other.

Importing PyTorch takes longer than all of the trainings, so one group does them in turn. For each, rank 0
writes the losses, the cost of a step and the final weights to a file in the folder RESULTS.
"""

import json
import os
from pathlib import Path

import torch
from language_model import counting, data
from language_model.assembly import assemble
from language_model.layout import Layout
from language_model.train import COUNTED_STEP
from language_model.weights import gather
from trainer_kit import process, seeds
from trainer_kit.group import Group

from tests.unit.trainer_images.language_model.layouts import STEPS, TINY


def train(group: Group) -> None:
    for name, parameters in json.loads(os.environ["LAYOUTS"]).items():
        os.environ.update(TINY)
        os.environ.update(parameters)
        result = run(Layout.from_environment(), group)
        for variable in parameters:
            del os.environ[variable]
        if group.is_master:
            torch.save(result, Path(os.environ["RESULTS"]) / f"{name}.pt")
            print("trained", name, flush=True)


def run(layout: Layout, group: Group) -> dict[str, object]:
    seeds.seed_everything(layout.seed)
    learner = assemble(layout, group)
    text = torch.randint(32, 96, (64, data.BLOCK), generator=torch.Generator().manual_seed(1))
    examples = data.Examples(text.cumsum(1) // 7 % 64 + 32, layout.context)
    place = data.Place(len(examples), layout.seed)
    losses = []
    for step in range(1, STEPS + 1):
        batch = examples.batch(place.take(layout.batch_size), group.device)
        if step == COUNTED_STEP:
            with counting.counting(learner) as cost:
                loss = learner.learn(batch, layout.lr)
            cost = counting.of_group(cost, group)
        else:
            loss = learner.learn(batch, layout.lr)
        losses += group.total(loss)
    return {"losses": losses, "cost": cost, "weights": gather(learner.model, group)}


if __name__ == "__main__":
    process.main(train)
