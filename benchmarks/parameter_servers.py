"""Parameter servers: the bytes of the busiest server, compared with a formula, and the time of an update.

    python -m benchmarks.parameter_servers [--quick]

Four workers send gradients of MEGABYTES MiB to 1, 2 and 4 servers, synchronously, without and with standbys.
The workers compute nothing, so an update takes only the time of its messages and of AdamW's step. With fewer
cores than processes, times depend more on the cores than on the servers.
"""

import time
from functools import partial
from typing import Any

import torch
from language_model.parameter_server import flat, shards
from language_model.parameter_server.replica import Replica
from language_model.parameter_server.roles import Roles
from language_model.parameter_server.running import serve, work
from language_model.parameter_server.server import ParameterServer
from language_model.parameter_server.shards import Shard
from language_model.parameter_server.synchrony import Synchrony, rule_of
from language_model.parameter_server.transport import Mailbox, new_group
from language_model.parameter_server.worker import Worker
from trainer_kit.group import Group

from benchmarks import forked_group
from benchmarks.support import Row, run_alone

MEGABYTES, WORKERS = 4, 4
TOLERANCE = 0.02


def measure(quick: bool) -> list[Row]:
    updates = 10 if quick else 50
    return [_row(servers, has_standby, updates) for servers in (1, 2, 4) for has_standby in (False, True)]


def _row(servers: int, has_standby: bool, updates: int) -> Row:
    size = servers * (1 + has_standby) + WORKERS
    roles = Roles(size, servers, has_standby)
    ranks = forked_group.run(partial(_train, roles=roles, updates=updates), size)
    sent, received = max((rank["traffic"] for rank in ranks[:servers]), key=sum)
    gradients, part = WORKERS * updates, MEGABYTES * 2**20 / servers
    formula = (gradients + WORKERS) * part + gradients * part * has_standby, gradients * part
    off = max(abs(sent / formula[0] - 1), abs(received / formula[1] - 1))
    return Row(
        f"{servers} servers{', standbys' if has_standby else ''}",
        f"{sent / 2**20:.1f} MiB sent, {received / 2**20:.1f} received",
        f"{formula[0] / 2**20:.1f} and {formula[1] / 2**20:.1f}",
        f"{1000 * ranks[0]['seconds'] / updates:.0f} ms for an update",
        f"off by less than {TOLERANCE:.0%}",
        met=off < TOLERANCE,
    )


def _train(group: Group, roles: Roles, updates: int) -> dict[str, Any]:
    """Train as one process of the group. Return its sent and received bytes, and the seconds it took."""
    messages = new_group()
    serves = group.rank in roles.replicas
    peers = {*range(group.size)} - {group.rank} if serves else roles.replicas
    mailbox = Mailbox(peers, torch.float32, messages, 60)
    model = Shard(torch.zeros(MEGABYTES * 2**20 // 4))
    began = time.perf_counter()
    if serves:
        shard = Shard(shards.split(flat.weights_of(model), roles.servers)[roles.shard_of(group.rank)].clone())
        adamw = torch.optim.AdamW(shard.parameters())
        server = ParameterServer(shard, adamw, rule_of(Synchrony.SYNCHRONOUS, WORKERS), lambda _: 0.001)
        state = partial(shards.state_of, shard, adamw)
        for _ in serve(Replica(group.rank, roles, server, updates, state, mailbox), mailbox):
            pass
    else:
        model.weights.grad = torch.ones_like(model.weights)
        work(model, lambda *_: 0.0, Worker(roles, mailbox), mailbox, updates)
    taken = time.perf_counter() - began
    mailbox.close()
    return {"traffic": mailbox.traffic, "seconds": taken}


if __name__ == "__main__":
    run_alone(measure)
