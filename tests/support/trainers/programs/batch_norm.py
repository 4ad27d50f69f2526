"""Trains a small convolutional network with batch normalization, on this rank's share of 24 images."""

import logging
import warnings
from typing import Any

import torch
from torch import nn
from trainer_kit import batch_norm
from trainer_kit.group import Group

IMAGES, STEPS = 24, 3


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5), nn.BatchNorm1d(5)
    ).double()


def main(group: Group) -> dict[str, Any]:
    warnings.simplefilter("error", FutureWarning)  # PyTorch's own warning, which would be in every log
    logging.getLogger("trainer_kit").addHandler(heard := Heard())
    local, grouped = trained(group, network()), trained(group, batch_norm.over_group(network()))
    return {"local": local, "grouped": grouped, "warnings": heard.lines}


def trained(group: Group, model: nn.Module) -> dict[str, list[float]]:
    replica = group.wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images = torch.randn(IMAGES, 3, 8, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for _ in range(STEPS):
        optimizer.zero_grad()
        share = images.chunk(group.size)[group.rank] + 100  # far from 0: squares must not cancel
        torch.autograd.backward((replica(share) - share.mean((1, 2, 3))[:, None]).square().mean())
        optimizer.step()
    return {name: value.flatten().tolist() for name, value in model.state_dict().items()}
