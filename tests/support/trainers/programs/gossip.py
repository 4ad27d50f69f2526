"""Ranks that average in pairs: without steps, in a training run, and with the slowest possible rank."""

import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from language_model import gossip_loop
from language_model.assembly import assemble
from language_model.gossip import Gossip
from language_model.layout import Layout
from language_model.parameter_server import flat
from torch import nn
from trainer_kit import traffic
from trainer_kit.group import Group
from trainer_kit.progress import Reporter

from tests.support.trainers.layouts import TINY
from tests.support.trainers.programs.parameter_server import Losses
from tests.support.trainers.programs.strategies import blocks

STEPS, ROUND, EXCHANGES = 12, 4, 20
SLOW = 1


def main(group: Group) -> dict[str, Any]:
    os.environ |= {
        **TINY,
        "BATCH_SIZE": "12",
        "STRATEGY": "gossip",
        "STEPS": str(STEPS),
        "LOCAL_STEPS": str(ROUND),
    }
    return {"pairs": without_steps(group), "trained": trained(group), "with a slow rank": with_slow(group)}


def without_steps(group: Group) -> dict[str, Any]:
    model = nn.Linear(5, 3).double()
    torch.nn.init.normal_(model.weight, generator=torch.Generator().manual_seed(group.rank))
    before = flat.weights_of(model)
    gossip = Gossip(model, dist.new_group(backend="gloo"), seed=1)
    with gossip.answering():
        for _ in range(EXCHANGES):
            gossip.exchange()
            group.barrier()  # otherwise one rank may ask for the last time before another asks at all
    after = flat.weights_of(model)
    return {
        "before": before.tolist(),
        "after": after.tolist(),
        "asked": gossip.asked,
        "sent": gossip.sent_bytes,
        "size": before.nbytes,
    }


def trained(group: Group) -> dict[str, Any]:
    gossips: list[Gossip] = []

    class Recorded(Gossip):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            gossips.append(self)

    sink = Losses()
    layout = Layout.from_environment()
    learner = assemble(layout, group)
    with (
        mock.patch.object(gossip_loop, "Gossip", Recorded),
        mock.patch.object(traffic.OF_PROCESS, "add", wraps=traffic.OF_PROCESS.add) as counted,
    ):
        returned = gossip_loop.fit(learner, layout, blocks(), group, Reporter(sink))
    return {
        "sent": sum(each.sent_bytes for each in gossips),
        "counted": sum(call.args[0] for call in counted.call_args_list),
        "size": flat.weights_of(learner.model).nbytes,
        "losses": sink.losses,
        "returned": returned,
        "weights": flat.weights_of(learner.model).double().sum().item(),
    }


def with_slow(group: Group) -> dict[str, Any]:
    """Train while rank SLOW begins no round before the others have taken all shares that they can take."""

    class Late(gossip_loop.Shares):
        def __iter__(self) -> Iterator[int]:
            while group.rank == SLOW and self.taken < self._count + group.size - 1:
                pass
            return super().__iter__()

    with mock.patch.object(gossip_loop, "Shares", Late):
        return trained(group)
