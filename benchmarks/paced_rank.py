"""A rank of a small training with DDP and checkpoints. It takes STEPS steps, each of which lasts a while.

At the end it prints the sum of the numbers of all steps. A step that was left out, or counted twice, would
change the sum.
"""

import os
import time

import torch
from torch import nn
from trainer_kit import checkpoints, process
from trainer_kit.group import Group
from trainer_kit.progress import reporting

STEP_SECONDS = 0.1


def train(group: Group) -> None:
    """Train as one rank of the group."""
    steps = int(os.environ["STEPS"])
    model = nn.Linear(16, 16)
    grouped = group.wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    batch = torch.ones(1, 16)
    with reporting(group) as reporter, checkpoints.kept(group, model, optimizer) as run:
        while run.steps < steps:
            optimizer.zero_grad()
            torch.autograd.backward(grouped(batch).square().mean())
            optimizer.step()
            time.sleep(STEP_SECONDS)
            run.values["sum"] = run.values.get("sum", 0) + run.steps + 1
            run.step()
            if group.is_master:
                reporter.report(step=run.steps, total_steps=steps)
        if group.is_master:
            print(f"sum {run.values['sum']}", flush=True)


if __name__ == "__main__":
    process.main(train)
