"""A rank that trains with DDP. Its steps mostly sleep.

With FAULT=slow:RANK:STEP, the rank RANK needs 30 % more time for each step, from the step STEP on. At that
step, the rank writes the time into a file in the folder RECORD.
"""

import os
import time
from pathlib import Path

import torch
from torch import nn
from trainer_kit import group as groups
from trainer_kit.progress import reporting

STEP_SECONDS = 0.25
"""The time of a step of a rank that is not slow. Almost all of it is sleep."""
SIZE, LAYERS = 64, 3


def model_of_linear() -> nn.Module:
    """Return a small model of linear layers."""
    return nn.Sequential(*(nn.Linear(SIZE, SIZE) for _ in range(LAYERS)))


def main() -> None:
    """Train as one rank of a group."""
    victim, at = map(int, os.environ["FAULT"].split(":")[1:])
    with groups.join() as group, reporting(group) as reporter:
        model = group.wrap(model_of_linear())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batch = torch.ones(1, SIZE)
        for step in range(1, 10_000):
            is_slow = group.rank == victim and step >= at
            time.sleep(STEP_SECONDS * (1.3 if is_slow else 1.0))
            if is_slow and step == at:
                (Path(os.environ["RECORD"]) / "stalled").write_text(repr(time.time()))
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            group.step(step)
            if group.is_master:
                reporter.report(step=step)


if __name__ == "__main__":
    main()
