"""Trains a tiny model in each of the layouts that the variable LAYOUTS names, one after the other.

The import of PyTorch takes longer than all trainings together, so one group trains with all layouts in turn.
For each layout, rank 0 writes the losses, the cost of a step and the final weights to a file in the folder
RESULTS. With SWITCH, the layouts train parts of one training run: each layout resumes from the checkpoint of
the one before.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from language_model import batch_size, counting, data
from language_model.assembly import assemble
from language_model.corpus import BLOCK
from language_model.layout import Layout
from language_model.weights import gather
from language_model.zero import own_share
from torch.distributed.checkpoint.stateful import Stateful
from trainer_kit import checkpoints, process, seeds
from trainer_kit.group import Group

from tests.support.trainers.layouts import TINY


def train(group: Group) -> None:
    layouts, last = json.loads(os.environ["LAYOUTS"]), int(os.environ["LAST_STEP"])
    for number, (name, parameters) in enumerate(layouts.items(), start=1):
        os.environ.update({**TINY, **parameters, "JOB_ATTEMPT": str(number)})
        steps = last * number // len(layouts) if "SWITCH" in os.environ else last
        result = run(Layout.from_environment(), group, steps)
        if group.is_master:
            torch.save(result, Path(os.environ["RESULTS"]) / f"{name}.pt")
            print("trained", name, flush=True)
        for variable in parameters:
            del os.environ[variable]


def blocks() -> torch.Tensor:
    """Return the text that all layouts learn."""
    text = torch.randint(32, 96, (64, BLOCK), generator=torch.Generator().manual_seed(1))
    return text.cumsum(1) // 7 % 64 + 32


def run(layout: Layout, group: Group, steps: int) -> dict[str, Any]:
    seeds.seed_everything(layout.seed)
    learner = assemble(layout, group)
    examples = data.Examples(blocks(), layout.context)
    place = data.Place(len(examples), layout.seed)
    losses: dict[int, float] = {}
    cost: dict[str, float] = {}
    optimizer = own_share(learner.optimizer)
    others: dict[str, Stateful] = {"place": place}
    if learner.local_weights is not None:
        others["local_weights"] = learner.local_weights
    with checkpoints.kept(group, learner.model, optimizer, before_save=learner.flush, **others) as kept:
        for step in range(kept.steps + 1, steps + 1):
            size = batch_size.at_step(step, layout).batch_size
            batch = examples.batch(place.take(size), group.device)
            if step == counting.counted_step(layout):
                with counting.counting(learner) as own:
                    loss = learner.learn(batch, layout.lr, step)
                cost = asdict(counting.of_group(own, group))
            else:
                loss = learner.learn(batch, layout.lr, step)
            [losses[step]] = group.total(loss)
            kept.step()
        learner.flush()
    unseen = examples.batch(place.take(layout.batch_size), group.device)
    [judged] = group.total(learner.judge(unseen))
    staleness: list[Any] = [None] * group.size
    if learner.stage:
        dist.all_gather_object(staleness, dict(learner.stage.staleness))
    return {
        "losses": losses,
        "judged": judged,
        "staleness": staleness,
        "cost": cost,
        "weights": gather(learner.model, group),
        "timeline": learner.timeline(),
    }


if __name__ == "__main__":
    process.main(train)
