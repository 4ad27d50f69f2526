"""Trainings with a parameter server in a group, one after the other. Returns the result of each.

Groups of 2 and 4 train a few weights in fp64, which can be compared bit by bit. Groups of 1 and 3 train the
language model without and with a server. A group of 5 does both, with two servers.
"""

import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from language_model import parameter_server_loop
from language_model.assembly import assemble
from language_model.corpus import BLOCK
from language_model.data import Examples
from language_model.layout import Layout
from language_model.model import loss_of
from language_model.parameter_server import flat, shards
from language_model.parameter_server.replica import Replica
from language_model.parameter_server.roles import Roles
from language_model.parameter_server.running import gather, serve, work
from language_model.parameter_server.server import ParameterServer
from language_model.parameter_server.shards import Shard
from language_model.parameter_server.synchrony import Rule, Synchrony, rule_of
from language_model.parameter_server.transport import Mailbox, new_group
from language_model.parameter_server.worker import Worker
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

PATIENCE = 60
TINY = {"LAYERS": "2", "HEADS": "2", "WIDTH": "32", "CONTEXT": "32", "BATCH_SIZE": "8", "STEPS": "20"}
SGD = {"OPTIMIZER": "sgd", "LR": "0.1"}
GROWING = {"GROW_AT": "10", "REFERENCE_BATCH_SIZE": "4", "LR_SCALING": "sqrt"}

Outcome = dict[str, Any]


def main(group: Group) -> dict[str, Outcome]:
    if group.size == 1:
        return {
            "plain": language_model(group, {}),
            "growing": language_model(group, GROWING),
            "three workers": language_model(group, {"BATCH_SIZE": "12"}),
            "sgd": language_model(group, {"BATCH_SIZE": "12", **SGD}),
        }
    if group.size == 3:
        chosen = {"STRATEGY": "parameter_server"}
        outcomes = {
            name: language_model(group, {**chosen, "SYNCHRONY": name, **added})
            for name, added in SERVED.items()
        }
        return {**outcomes, "growing": language_model(group, {**chosen, **GROWING})}
    if group.size == 5:
        chosen = {"STRATEGY": "parameter_server", "SERVERS": "2"}
        return {
            "few": few_weights(group, rule_of(Synchrony.SYNCHRONOUS, 3), servers=2),
            "three workers": language_model(group, {**chosen, "BATCH_SIZE": "12"}),
            "sgd": language_model(group, {**chosen, "BATCH_SIZE": "12", **SGD}),
            "asynchronous": language_model(group, {**chosen, "SYNCHRONY": "asynchronous"}),
            "of one server": language_model(
                group, {**chosen, "SERVERS": "1", "STANDBY": "true", "BATCH_SIZE": "12"}
            ),
        }
    workers = group.size - 1
    outcomes = {
        name: few_weights(group, rule_of(Synchrony(name), workers))
        for name in ("synchronous", "backup_workers", "asynchronous")
    }
    if workers == 3:
        outcomes["late"] = few_weights(group, Rule(2, in_step=True), straggler=3)
        outcomes["speculative"] = few_weights(group, rule_of(Synchrony.SPECULATIVE, workers), straggler=3)
    return outcomes


def few_weights(group: Group, rule: Rule, straggler: int | None = None, servers: int = 1) -> Outcome:
    """Train a few weights, and return the outcome of this process.

    The worker `straggler` computes its first gradient only after worker 1 has computed three.
    """
    model, messages, roles = build(), new_group(), Roles(group.size, servers)
    weights = flat.weights_of(model)
    peers = {*range(group.size)} - {group.rank} if group.rank in roles.replicas else roles.replicas
    mailbox = Mailbox(peers, weights.dtype, messages, PATIENCE)
    if group.rank in roles.replicas:
        shard = Shard(shards.split(weights, servers)[group.rank].clone())
        server = ParameterServer(shard, optimizer_of(shard), rule, lambda _: RATE)
        replica = Replica(group.rank, roles, server, UPDATES, lambda: flat.weights_of(shard), mailbox)
        losses = [update.loss for update in serve(replica, mailbox)]
        own = flat.weights_of(shard)
        if replica.leader is not None:
            own = torch.cat([own, *gather(replica, mailbox)])
        mailbox.close()
        return {
            "weights": own.tolist(),
            "losses": losses,
            "staleness": dict(server.staleness),
            "dropped": server.dropped,
        }
    versions: list[int] = []
    word = torch.zeros(1)

    def learn(version: int, share: int) -> float:
        if group.rank == straggler and not versions:
            dist.recv(word, src=1)
        model.zero_grad()
        own = group.rank - servers, len(versions)
        number, count = own if share < 0 else (share, version)
        loss = loss_on(model, batch_of(number + 1, count))
        torch.autograd.backward(loss)
        versions.append(version)
        if straggler and group.rank == 1 and len(versions) == 3:
            dist.send(word, dst=straggler)
        return loss.item()

    count = work(model, learn, Worker(roles, mailbox), mailbox, UPDATES)
    mailbox.close()
    return {"count": count, "versions": versions, "weights": flat.weights_of(model).tolist()}


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
    for name in {**TINY, **parameters}:
        del os.environ[name]
    learner = assemble(layout, group)
    text = torch.randint(32, 96, (64, BLOCK), generator=torch.Generator().manual_seed(1))
    sink = Losses()
    take_steps = parameter_server_loop.fit if layout.is_served else fit
    blocks = text.cumsum(1) // 7 % 64 + 32
    metrics = take_steps(learner, layout, blocks, group, Reporter(sink))
    # A sample of the weights keeps the line short.
    weights = flat.weights_of(learner.model)
    batch = Examples(blocks, layout.context).batch(torch.arange(64), group.device)
    with torch.no_grad():
        loss = loss_of(learner.model(batch.tokens), batch.targets).item()
    return {
        "losses": sink.losses,
        "loss": loss,
        "metrics": metrics,
        "bytes": weights.nbytes,
        "weights": weights[::97].tolist(),
    }
