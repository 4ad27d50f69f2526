"""A training run with dropout, momentum and every kind of randomness, which prints each loss exactly.

With SHARDED, every process holds only its shard of the model. With WAIT, each step waits for its save. After
the step HOLD_AT, the group waits for the file GO, or for ever without GO.
With URIs of the form hindered://, HINDER=stall stalls the writing of a manifest for ever, HINDER=refuse
fails all writes of rank 1, and HINDER=hold waits after the publication of a manifest until data is
written to the pipe HOLD.
"""

import hashlib
import os
import random
import time
from pathlib import Path
from typing import Any

import fsspec
import torch
from fsspec.implementations.local import LocalFileSystem
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from trainer_kit import checkpoints, process, seeds
from trainer_kit.group import Group
from trainer_kit.sampling import EpochSampler

EXAMPLES, BATCH, EPOCHS = 120, 5, 3
HOLD_AT = int(os.environ.get("HOLD_AT", "0"))


class HinderedFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    protocol = "hindered"

    def pipe_file(self, path: str, value: bytes, *arguments: Any, **options: Any) -> None:
        if path.endswith("manifest.partial") and os.environ.get("HINDER") == "stall":
            super().pipe_file(path, value[:10])
            print("stalled", flush=True)
            time.sleep(600)
        super().pipe_file(path, value, *arguments, **options)

    def mv(self, path: str, new_path: str, **options: Any) -> None:
        super().mv(path, new_path, **options)
        if new_path.endswith(".json") and os.environ.get("HINDER") == "hold":
            print("published", flush=True)
            Path(os.environ["HOLD"]).read_text()

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "wb" and (os.environ.get("HINDER"), os.environ["RANK"]) == ("refuse", "1"):
            raise PermissionError(f"rank 1 may not write {path}")
        return super()._open(path, mode, **options)


fsspec.register_implementation("hindered", HinderedFileSystem)


def train(group: Group) -> None:
    seeds.seed_everything(3)
    model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 1))
    grouped: nn.Module = model
    if "SHARDED" in os.environ:
        fully_shard(model)
    else:
        grouped = group.wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.9)
    data = torch.randn(EXAMPLES, 8, generator=torch.Generator().manual_seed(1))
    place = EpochSampler(EXAMPLES, group, seed=1)
    with checkpoints.kept(group, model, optimizer, schedule=schedule, place=place) as run:
        while place.epoch <= EPOCHS:
            own = list(place)
            for start in range(0, len(own) - BATCH + 1, BATCH):
                batch = data[own[start : start + BATCH]]
                error = grouped(batch) - batch.sum(1, keepdim=True) * random.random()
                loss = error.square().mean()
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
                schedule.step()
                place.take(BATCH)
                print(run.steps + 1, loss.item().hex(), flush=True)
                run.step()
                if "WAIT" in os.environ:
                    run.wait()
                if run.steps == HOLD_AT:
                    hold(group)
            place.next_epoch()
    weights = [whole(parameter).detach().numpy().tobytes() for parameter in model.parameters()]
    print("weights", hashlib.sha256(b"".join(weights)).hexdigest(), flush=True)


def hold(group: Group) -> None:
    # All go on in the same round. Meanwhile, a lost process is noticed.
    while group.total("GO" in os.environ and Path(os.environ["GO"]).exists())[0] < group.size:
        time.sleep(0.01)


def whole(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


if __name__ == "__main__":
    process.main(train)
