"""A rank that trains with DDP, steps emulated by sleep. With SLOW=RANK:STEP, that rank works 30 % longer from then on.

`hook_cost` measures what it costs to note the waiting of DDP.
"""

import os
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from trainer_kit import group as groups
from trainer_kit.progress import reporting

from benchmarks import stalling_rank
from benchmarks.support import interleaved

_SIZE, _LAYERS = 64, 3


def hook_cost(rounds: int = 40, steps: int = 100) -> tuple[float, float]:
    """Return the µs of CPU time that the hook adds to a step, and those of the step, in a group of one.

    Steps with and without the hook run in turn, in this process.
    """
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        plain, noted = DistributedDataParallel(_model()), DistributedDataParallel(_model())
        groups._note_waiting(noted)
        batch = torch.ones(1, _SIZE)

        def each(replica: nn.Module) -> float:
            began = time.process_time()
            for _ in range(steps):
                replica(batch).sum().backward()
            return (time.process_time() - began) / steps * 1e6

        each(plain)
        each(noted)
        without, with_hook = interleaved(rounds, lambda: each(plain), lambda: each(noted))
    finally:
        dist.destroy_process_group()
    added = statistics.median(b - a for a, b in zip(without, with_hook, strict=True))
    return added, statistics.median(without)


def _model() -> nn.Module:
    return nn.Sequential(*(nn.Linear(_SIZE, _SIZE) for _ in range(_LAYERS)))


def main() -> None:
    """Train."""
    victim, at = map(int, os.environ["FAULT"].split(":")[1:])
    with groups.join() as group, reporting(group) as reporter:
        model = group.wrap(_model())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batch = torch.ones(1, _SIZE)
        for step in range(1, 10_000):
            is_slow = group.rank == victim and step >= at
            time.sleep(stalling_rank.STEP_SECONDS * (1.3 if is_slow else 1.0))
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
