"""Measures the costs of one step for a rank, with `traffic` and `memory_meter`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from torch import Tensor
from trainer_kit.group import Group

from language_model import memory_meter
from language_model.assembly import Learner
from language_model.sharded_adamw import ShardedAdamW
from language_model.traffic import Traffic
from language_model.zero import own_share


@dataclass
class StepCost:
    """The costs of one step for one process, in bytes."""

    sent_bytes: float = 0
    parameter_bytes: float = 0
    """Memory that is held between steps, like the next two."""
    gradient_bytes: float = 0
    optimizer_bytes: float = 0
    peak_bytes: float = 0
    """The peak memory, including activations and temporary tensors."""


@contextmanager
def counting(learner: Learner) -> Iterator[StepCost]:
    """Measure a step that is taken in the block. The cost is complete after the block."""
    cost, optimizer = StepCost(), own_share(learner.optimizer)
    kept = [*memory_meter.parameters_of(learner.model), *memory_meter.state_of(optimizer)]

    def before_the_step(*_: object) -> None:
        cost.gradient_bytes = memory_meter.size_of(gradients_of(learner))

    hook = optimizer.register_step_pre_hook(before_the_step)
    try:
        with memory_meter.MemoryMeter(kept) as memory, Traffic() as traffic:
            yield cost
    finally:
        hook.remove()
    cost.sent_bytes, cost.peak_bytes = traffic.bytes_sent, memory.peak
    cost.parameter_bytes = memory_meter.size_of(memory_meter.parameters_of(learner.model))
    cost.optimizer_bytes = memory_meter.size_of(memory_meter.state_of(optimizer))


def gradients_of(learner: Learner) -> list[Tensor]:
    """Return this process's share of the gradients."""
    if isinstance(learner.optimizer, ShardedAdamW):
        return learner.optimizer.gradients.held
    return memory_meter.gradients_of(learner.model)


def of_group(cost: StepCost, group: Group) -> StepCost:
    """Return the mean of the sent bytes over all ranks, and the maximum of each kind of memory."""
    values = asdict(cost)
    own = [value if rank == group.rank else 0.0 for value in values.values() for rank in range(group.size)]
    totals = group.total(*own)
    ranks = {name: totals[i * group.size : (i + 1) * group.size] for i, name in enumerate(values)}
    highest = {name: max(of_rank) for name, of_rank in ranks.items()}
    return StepCost(**{**highest, "sent_bytes": sum(ranks["sent_bytes"]) / group.size})
