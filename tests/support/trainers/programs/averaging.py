"""Trains a small model with each compression of gradients, and prints the results as one JSON object."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from trainer_kit import checkpoints, process, traffic
from trainer_kit.averaging import Averaging, Compression, sent_bytes
from trainer_kit.group import Group

STEPS = 6


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(40, 60), nn.ReLU(), nn.Linear(60, 3))


def step(wrapped: nn.Module, number: int, rank: int) -> None:
    batch = torch.randn(8, 40, generator=torch.Generator().manual_seed(100 * number + rank))
    wrapped.zero_grad()
    torch.autograd.backward(wrapped(batch).square().mean())


def trained(group: Group, wrap: Callable[[nn.Module], nn.Module]) -> dict[str, Any]:
    bare = model()
    wrapped = wrap(bare)
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.1)
    traffic.OF_PROCESS.of_steps(0)
    for number in range(1, STEPS + 1):
        step(wrapped, number, group.rank)
        optimizer.step()
        sent = traffic.OF_PROCESS.of_steps(number)
    return {"weights": flat(bare).tolist(), "digest": digest(bare), "sent": sent}


def resumed(group: Group, folder: Path, stops: list[int], **settings: Any) -> list[str]:
    """Train in several attempts, and return the digest of the weights after each."""
    os.environ["CHECKPOINT_URI"] = str(folder)
    digests = []
    for attempt, stop in enumerate(stops, start=1):
        os.environ["JOB_ATTEMPT"] = str(attempt)
        bare = model()
        wrapped = group.wrap(bare, Averaging(compression=Compression.POWERSGD, **settings))
        optimizer = torch.optim.SGD(bare.parameters(), lr=0.1)
        with checkpoints.kept(group, bare, optimizer) as run:
            for number in range(run.steps + 1, stop + 1):
                step(wrapped, number, group.rank)
                optimizer.step()
                run.step()
                run.wait()
        digests.append(digest(bare))
    return digests


def flat(bare: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in bare.parameters()])


def digest(bare: nn.Module) -> str:
    return hashlib.sha256(flat(bare).numpy().tobytes()).hexdigest()


def train(group: Group) -> None:
    shapes = [parameter.shape for parameter in model().parameters()]
    result: dict[str, Any] = {"library": trained(group, DistributedDataParallel)}
    for compression in Compression:
        averaging = Averaging(compression=compression)
        result[compression] = trained(group, lambda bare, a=averaging: group.wrap(bare, a))  # type: ignore[misc]
        result[compression]["formula"] = sent_bytes(shapes, group.size, averaging)
    try:
        DistributedDataParallel(model()).register_comm_hook(None, default_hooks.bf16_compress_hook)
    except Exception as error:
        result["bf16 of PyTorch"] = f"{type(error).__name__}: {error}"
    folder = Path(os.environ["RESULTS"])
    result["once"] = resumed(group, folder / "once", [STEPS])
    result["resumed"] = resumed(group, folder / "resumed", [3, STEPS])
    result["early"] = resumed(group, folder / "early", [1, STEPS])
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    process.main(train)
