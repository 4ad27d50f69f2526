"""The training that `benchmarks.checkpoints` measures: `python -m benchmarks.checkpointed MODE`.

MODE is the name of a function: `overhead`, `agreement` or `kill`.
"""

import json
import os
import statistics
import sys
import time

import torch
from torch import nn
from trainer_kit import checkpoints, process
from trainer_kit.checkpoints.keeping import Kept
from trainer_kit.group import Group

STEPS = 40
"""The number of steps in a window."""


class Work:
    """A network of four layers and its optimizer: about 50 MB of state at a width of 1024."""

    def __init__(self, group: Group, width: int = 1024) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(*(nn.Linear(width, width) for _ in range(4)))
        self._grouped = group.wrap(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self._batch = torch.randn(64, width)

    def step(self) -> None:
        self.optimizer.zero_grad()
        torch.autograd.backward(self._grouped(self._batch).square().mean())
        self.optimizer.step()

    def megabytes(self) -> float:
        return 3 * 4 * sum(parameter.numel() for parameter in self.model.parameters()) / 1e6


def window(work: Work, run: Kept | None) -> tuple[float, float]:
    """Train for the steps of a window. Without `run`, nothing is saved.

    Return the CPU seconds of the process, and the seconds of the longest `run.step`.
    """
    longest = 0.0
    began = time.process_time()
    for _ in range(STEPS):
        work.step()
        if run is not None:
            called = time.perf_counter()
            run.step()
            longest = max(longest, time.perf_counter() - called)
    if run is not None:
        run.wait()  # a save counts for the window in which it began
    return time.process_time() - began, longest


def overhead(group: Group) -> None:
    """Measure windows with one save and windows without a save, in turn, and print the results."""
    os.environ |= {"CHECKPOINT_EVERY_SECONDS": "1e6", "CHECKPOINT_EVERY_STEPS": str(STEPS)}
    work = Work(group)
    times: dict[str, list[float]] = {"with": [], "without": [], "blocked": [], "step": []}
    with checkpoints.kept(group, work.model, work.optimizer) as run:
        for _ in range(STEPS - 1):
            run.step()  # makes a save due after the first step of each window with a save
        for number in range(-1, int(os.environ["WINDOWS"])):
            for kind in ("with", "without") if number % 2 else ("without", "with"):
                seconds, longest = window(work, run if kind == "with" else None)
                if number < 0:
                    continue  # the first round does not count: it also allocates memory
                times[kind].append(seconds)
                if kind == "with":
                    times["blocked"].append(longest)
                else:
                    times["step"].append(seconds / STEPS)
    print(json.dumps({**times, "megabytes": work.megabytes()}), flush=True)


def agreement(group: Group) -> None:
    """Measure the cost of the messages by which the processes agree in each step whether to save.

    Windows with and without this exchange alternate. No save becomes due. Print the results.
    """
    os.environ |= {"CHECKPOINT_EVERY_SECONDS": "1e6"}
    work = Work(group, width=128)
    times: dict[str, list[float]] = {"with": [], "without": []}
    with checkpoints.kept(group, work.model, work.optimizer) as run:
        for _ in range(int(os.environ["WINDOWS"])):
            times["with"].append(window(work, run)[0])
            times["without"].append(window(work, None)[0])
    steps = {f"{kind}_step": statistics.median(each) / STEPS for kind, each in times.items()}
    print(json.dumps({**times, **steps}), flush=True)


def kill(group: Group) -> None:
    """Train until killed. At the start and after each step, print the seconds of training so far.

    This number includes the training of earlier attempts, up to the checkpoint from which this attempt
    continues.
    """
    work = Work(group)
    with checkpoints.kept(group, work.model, work.optimizer) as run:
        before = run.values.setdefault("seconds", 0.0)
        print(before, flush=True)
        began = time.monotonic()
        while True:
            work.step()
            run.values["seconds"] = before + time.monotonic() - began
            print(run.values["seconds"], flush=True)
            run.step()


if __name__ == "__main__":
    process.main({"overhead": overhead, "agreement": agreement, "kill": kill}[sys.argv[1]])
