"""The training loop with a parameter server: rank 0 updates the weights, others compute gradients."""

import logging
import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from trainer_kit import checkpoints
from trainer_kit.errors import TrainingError
from trainer_kit.group import Group
from trainer_kit.progress import Reporter

from language_model import batch_size, data
from language_model.assembly import Learner
from language_model.dropout import Position
from language_model.layout import Layout
from language_model.parameter_server import flat
from language_model.parameter_server.running import serve, work
from language_model.parameter_server.server import ParameterServer
from language_model.parameter_server.transport import SERVER, ServerTransport, WorkerTransport

log = logging.getLogger(__name__)


def fit(
    learner: Learner, layout: Layout, blocks: Tensor, group: Group, reporter: Reporter
) -> dict[str, float]:
    """Take the remaining steps; return the server's last report. All ranks end with the same weights."""
    # The server takes the first gradient that arrives from any worker. NCCL has no call for that.
    on_host = dist.new_group(backend="gloo") if group.device.type == "cuda" else None
    examples = data.Examples(blocks, layout.context)
    place = data.Place(len(examples), layout.seed)
    last_report: dict[str, float] = {}
    if group.is_master:
        last_report = _serve(learner, layout, place, group, on_host, reporter)
    else:
        _work(learner, layout, examples, place, group, on_host)
    for parameter in learner.model.parameters():
        dist.broadcast(parameter.detach(), src=SERVER)
    return last_report


def _serve(
    learner: Learner,
    layout: Layout,
    place: data.Place,
    group: Group,
    on_host: dist.ProcessGroup | None,
    reporter: Reporter,
) -> dict[str, float]:
    last_report: dict[str, Any] = {}
    alone = Group(rank=0, size=1, device=group.device)  # the workers have nothing to save
    with checkpoints.kept(alone, learner.model, learner.optimizer, place=place) as run:
        dist.broadcast(torch.tensor([place.taken], device=group.device), src=SERVER)
        server = ParameterServer(
            learner.model,
            learner.optimizer,
            layout.rule,
            lambda step: batch_size.at_step(step, layout).learning_rate,
            version=run.steps,
        )
        transport = ServerTransport(flat.weights_of(learner.model), on_host)
        for update in serve(server, transport, layout.steps):
            if not math.isfinite(update.loss):
                raise TrainingError(f"the loss is not finite in step {update.number}: try a smaller LR")
            examples = _examples_of(update.number, layout)
            place.taken += examples
            last_report = {"loss": update.loss, **_staleness(server)}
            run.step()
            reporter.report(step=run.steps, total_steps=layout.steps, examples=examples, **last_report)
    histogram = ", ".join(f"{count} x {value}" for value, count in sorted(server.staleness.items()))
    log.info("gradients by staleness: %s; %d dropped", histogram or "none", server.dropped)
    return last_report


def _work(
    learner: Learner,
    layout: Layout,
    examples: data.Examples,
    place: data.Place,
    group: Group,
    on_host: dist.ProcessGroup | None,
) -> None:
    taken = torch.tensor([0], device=group.device)
    dist.broadcast(taken, src=SERVER)
    place.taken = int(taken.item())

    def learn(version: int) -> float:
        share = _share_of(version + 1, layout)
        numbers = place.take(share * (group.size - 1)).view(-1, share)[group.rank - 1]
        position = Position(version + 1, share * (group.rank - 1))
        loss = learner.find_gradients(examples.batch(numbers, group.device), position)
        assert loss is not None  # it is None only in a pipeline
        return loss

    count = work(learner.model, learn, WorkerTransport(flat.weights_of(learner.model), on_host))
    log.info("%d gradients computed", count)


def _share_of(step: int, layout: Layout) -> int:
    """Return the number of examples per gradient. The gradients of an update together make the batch."""
    return batch_size.at_step(step, layout).batch_size // layout.batch_shares


def _examples_of(step: int, layout: Layout) -> int:
    """Return the number of examples that the workers take per step of the server, including dropped ones."""
    gradients = layout.world_size - 1 if layout.rule.in_step else layout.rule.gradients
    return _share_of(step, layout) * gradients


def _staleness(server: ParameterServer) -> dict[str, float]:
    """Return the staleness of the applied gradients, and the number of dropped ones."""
    total = sum(server.staleness.values())
    return {
        "staleness_mean": sum(value * count for value, count in server.staleness.items()) / total,
        "staleness_max": max(server.staleness),
        "dropped_gradients": server.dropped,
    }
