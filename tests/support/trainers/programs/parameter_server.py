"""Trainings with a parameter server in a group, one after the other. Returns the result of each.

Groups of 2 and 4 train a few weights in fp64, which can be compared bit by bit. Groups of 1 and 3 train
the language model without and with a server.
"""

import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from language_model import parameter_server_loop
from language_model.assembly import assemble
from language_model.corpus import BLOCK
from language_model.layout import Layout
from language_model.parameter_server import flat
from language_model.parameter_server.running import serve, work
from language_model.parameter_server.server import ParameterServer
from language_model.parameter_server.synchrony import Rule, Synchrony, rule_of
from language_model.parameter_server.transport import SERVER, ServerTransport, WorkerTransport
from language_model.train import fit
from trainer_kit.group import Group
from trainer_kit.progress import Reporter
from trainer_kit.report_sinks import NullSink, Progress

from tests.support.trainers.parameter_server import (
    RATE,
    SERVED,
    UPDATES,
    batch_of,
    build,
    loss_on,
    optimizer_of,
)

TINY = {"LAYERS": "2", "HEADS": "2", "WIDTH": "32", "CONTEXT": "32", "BATCH_SIZE": "8", "STEPS": "20"}
GROWING = {"GROW_AT": "10", "REFERENCE_BATCH_SIZE": "4", "LR_SCALING": "sqrt"}

Outcome = dict[str, Any]


def main(group: Group) -> dict[str, Outcome]:
    if group.size == 1:
        return {"plain": language_model(group, {}), "growing": language_model(group, GROWING)}
    if group.size == 3:
        chosen = {"STRATEGY": "parameter_server"}
        outcomes = {
            name: language_model(group, {**chosen, "SYNCHRONY": name, **added})
            for name, added in SERVED.items()
        }
        return {**outcomes, "growing": language_model(group, {**chosen, **GROWING})}
    workers = group.size - 1
    outcomes = {
        name: few_weights(group, rule_of(Synchrony(name), workers))
        for name in ("synchronous", "backup_workers", "asynchronous")
    }
    if workers == 3:
        outcomes["late"] = few_weights(group, Rule(2, in_step=True), straggler=3)
    return outcomes


def few_weights(group: Group, rule: Rule, straggler: int | None = None) -> Outcome:
    """Train a few weights. The straggler computes its first gradient after worker 1 has computed three."""
    model = build()
    template = flat.weights_of(model)
    if group.rank == SERVER:
        server = ParameterServer(model, optimizer_of(model), rule, lambda _: RATE)
        losses = [update.loss for update in serve(server, ServerTransport(template), UPDATES)]
        return {
            "weights": flat.weights_of(model).tolist(),
            "losses": losses,
            "staleness": dict(server.staleness),
            "dropped": server.dropped,
        }
    versions: list[int] = []
    word = torch.zeros(1)

    def learn(version: int) -> float:
        if group.rank == straggler and not versions:
            dist.recv(word, src=1)
        model.zero_grad()
        loss = loss_on(model, batch_of(group.rank, len(versions)))
        torch.autograd.backward(loss)
        versions.append(version)
        if straggler and group.rank == 1 and len(versions) == 3:
            dist.send(word, dst=straggler)
        return loss.item()

    return {"count": work(model, learn, WorkerTransport(template)), "versions": versions}


class Losses(NullSink):
    """Records the reported losses."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.last: dict[str, float] = {}

    def progress(self, known: Progress, fresh: Mapping[str, float]) -> None:
        if "loss" in fresh:
            self.losses.append(fresh["loss"])


def language_model(group: Group, parameters: dict[str, str]) -> Outcome:
    os.environ |= {**TINY, **parameters}
    layout = Layout.from_environment()
    for name in parameters:
        del os.environ[name]
    learner = assemble(layout, group)
    text = torch.randint(32, 96, (64, BLOCK), generator=torch.Generator().manual_seed(1))
    sink = Losses()
    take_steps = parameter_server_loop.fit if layout.is_served else fit
    counts = take_steps(learner, layout, text.cumsum(1) // 7 % 64 + 32, group, Reporter(sink))
    # A sample of the weights keeps the line short.
    return {"losses": sink.losses, "counts": counts, "weights": flat.weights_of(learner.model)[::97].tolist()}
