"""Ranks that average in pairs until the rank KILLED is killed."""

import os
import signal

import torch.distributed as dist
from language_model.gossip import Gossip
from torch import nn
from trainer_kit import process
from trainer_kit.group import Group


def train(group: Group) -> None:
    gossip = Gossip(nn.Linear(5, 3), dist.new_group(backend="gloo"), seed=1)
    with gossip.answering():
        for number in range(10_000_000):
            gossip.exchange()
            if number == 3 and group.rank == int(os.environ["KILLED"]):
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    process.main(train)
