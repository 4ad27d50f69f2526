"""Trains with a contrastive loss on this rank's share of 16 pairs, with the negatives of all ranks and with a
queue.
"""

import copy
from typing import Any

import torch
from torch import nn
from trainer_kit import contrast
from trainer_kit.group import Group

PAIRS, WIDTH, STEPS = 16, 6, 3


def main(group: Group) -> dict[str, Any]:
    return {"negatives": with_negatives(group), "queue": with_queue(group)}


def encoder() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, WIDTH)).double()


def share(group: Group, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(step)
    views = torch.randn(2, PAIRS, 9, generator=dice, dtype=torch.float64)
    own = views.chunk(group.size, dim=1)[group.rank]
    return own[0], own[0] + 0.3 * own[1]


def with_negatives(group: Group) -> list[float]:
    model = encoder()
    replica = group.wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        one, other = share(group, step)
        queries, keys = replica(torch.cat([one, other])).chunk(2)
        torch.autograd.backward(contrast.info_nce(queries, keys) + contrast.info_nce(keys, queries))
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).tolist()


def with_queue(group: Group) -> dict[str, Any]:
    model = encoder()
    slow = copy.deepcopy(model)
    replica = group.wrap(model)
    torch.manual_seed(3)
    queue = contrast.Queue(40, WIDTH).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        one, other = share(group, step)
        keys = slow(other).detach()
        torch.autograd.backward(contrast.info_nce(replica(one), keys, queue.keys()))
        optimizer.step()
        queue.put(keys)
        contrast.follow(slow, model, momentum=0.9)
    flat = [parameter.detach().flatten() for both in (model, slow) for parameter in both.parameters()]
    return {"weights": torch.cat(flat).tolist(), "keys": queue.keys().tolist()}
