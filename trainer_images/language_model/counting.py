"""Measures the costs of one step for a rank, with `traffic` and `memory_meter`."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from torch import Tensor
from trainer_kit.group import Group

from language_model import memory_meter
from language_model.assembly import Learner
from language_model.layout import Layout
from language_model.sharded_adamw import ShardedAdamW
from language_model.traffic import Traffic
from language_model.zero import own_share

log = logging.getLogger(__name__)

COUNTED_STEP = 4
"""The first step of an attempt that may be measured (see `counted_step`).

Earlier steps also allocate objects that stay in memory. If an attempt has fewer steps, its last step is
measured.
"""


@dataclass
class StepCost:
    """The costs of one step for one process."""

    sent_bytes: float = 0
    messages: float = 0
    """The number of messages from one process to another. Those within collectives do not count."""
    parameter_bytes: float = 0
    """The memory of parameters between steps."""
    gradient_bytes: float = 0
    """The memory of gradients at the start of the optimizer's step."""
    optimizer_bytes: float = 0
    """The memory of the optimizer's state between steps."""
    peak_bytes: float = 0
    """The peak memory of the device, including activations and temporary tensors."""
    host_peak_bytes: float = 0
    """The peak memory of the host for the data that OFFLOAD moves."""
    to_host_bytes: float = 0
    """The bytes that OFFLOAD copies from the device to the host."""
    to_device_bytes: float = 0


def counted_step(layout: Layout) -> int:
    """Return the number (from 1) of the step of an attempt whose costs are measured.

    By that step, an asynchronous pipeline has all its versions of weights. With LOCAL_STEPS, the step is one
    after which weights are averaged, if the attempt begins just after such an average.
    """
    in_full = max(COUNTED_STEP, 2 * layout.pipeline if layout.is_asynchronous else 0)
    return -(-in_full // layout.local_steps) * layout.local_steps


@contextmanager
def counting(learner: Learner) -> Iterator[StepCost]:
    """Measure a step that is taken in the block. The cost is complete after the block."""
    cost, optimizer = StepCost(), own_share(learner.optimizer)
    # Do not assign this list to a variable: the variable would keep the state in memory after
    # OFFLOAD=optimizer has moved it.
    memory = memory_meter.MemoryMeter([*weights_of(learner), *memory_meter.state_of(optimizer)], learner.host)

    def before_the_step(*_: object) -> None:
        cost.gradient_bytes = memory_meter.size_of(gradients_of(learner))

    host = learner.host
    copied = host.bytes_in, host.bytes_out
    hook = optimizer.register_step_pre_hook(before_the_step)
    try:
        with memory, Traffic() as traffic:
            yield cost
    finally:
        hook.remove()
    cost.sent_bytes, cost.messages, cost.peak_bytes = traffic.bytes_sent, traffic.messages, memory.peak
    cost.host_peak_bytes = memory.host_peak
    cost.to_host_bytes, cost.to_device_bytes = host.bytes_in - copied[0], host.bytes_out - copied[1]
    cost.parameter_bytes = memory_meter.size_of(weights_of(learner))
    cost.optimizer_bytes = memory_meter.size_of(memory_meter.state_of(optimizer))


@contextmanager
def counted(learner: Learner, group: Group, metrics: dict[str, float]) -> Iterator[None]:
    """Measure the step in the block. Add its costs (see `of_group`) to the metrics, and log them.

    Every process must call this.
    """
    with counting(learner) as cost:
        yield
    metrics |= asdict(of_group(cost, group))
    log.info("::counted:: %s", json.dumps({name: metrics[name] for name in asdict(cost)}))


def weights_of(learner: Learner) -> list[Tensor]:
    """Return this process's share of the parameters, in all versions that it keeps."""
    stashed = learner.stage.versions.stashed if learner.stage else []
    return [*memory_meter.parameters_of(learner.model), *stashed]


def gradients_of(learner: Learner) -> list[Tensor]:
    """Return this process's share of the gradients."""
    if isinstance(learner.optimizer, ShardedAdamW):
        return learner.optimizer.gradients.held
    return memory_meter.gradients_of(learner.model)


def of_group(cost: StepCost, group: Group) -> StepCost:
    """Return the means of the sent bytes and messages over all ranks, and the maximum of each other cost."""
    values = asdict(cost)
    own = [value if rank == group.rank else 0.0 for value in values.values() for rank in range(group.size)]
    totals = group.total(*own)
    ranks = {name: totals[i * group.size : (i + 1) * group.size] for i, name in enumerate(values)}
    highest = {name: max(of_rank) for name, of_rank in ranks.items()}
    means = {name: sum(ranks[name]) / group.size for name in ("sent_bytes", "messages")}
    return StepCost(**{**highest, **means})
