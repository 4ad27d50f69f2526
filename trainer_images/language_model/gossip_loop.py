"""The training loop of ranks that average their weights in pairs: STRATEGY=gossip.

Within a round of LOCAL_STEPS steps, each rank that becomes free takes the next share of a batch. So a
slow rank takes fewer shares, but at least one, and each share is taken once. After a round, all ranks average
their weights and moments. Then, a checkpoint may be saved.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from datetime import timedelta

import torch.distributed as dist
from torch import Tensor
from trainer_kit import checkpoints, meeting, traffic
from trainer_kit.errors import TrainingError
from trainer_kit.group import Group
from trainer_kit.progress import Reporter

from language_model import batch_size, data
from language_model.assembly import Learner
from language_model.dropout import Position
from language_model.gossip import Gossip
from language_model.layout import Layout

log = logging.getLogger(__name__)


def fit(
    learner: Learner, layout: Layout, blocks: Tensor, group: Group, reporter: Reporter
) -> dict[str, float]:
    """Take the remaining steps, and return the last reported metrics."""
    examples = data.Examples(blocks, layout.context)
    place = data.Place(len(examples), layout.seed)
    peers = dist.new_group(backend="gloo", timeout=timedelta(seconds=meeting.patience()))
    metrics: dict[str, float] = {}
    with checkpoints.kept(group, learner.model, learner.optimizer, place=place) as run:
        while run.steps < layout.steps:
            steps = range(run.steps + 1, run.steps + layout.local_steps + 1)
            metrics = _round(learner, layout, steps, examples, place, group, peers)
            if not math.isfinite(metrics["loss"]):
                raise TrainingError(f"the loss is not finite in step {steps[-1]}: try a smaller LR")
            run.steps += len(steps) - 1
            run.step()
            taken = sum(batch_size.at_step(step, layout).batch_size for step in steps)
            reporter.report(step=run.steps, total_steps=layout.steps, examples=taken)
            reporter.report(**metrics)  # type: ignore[arg-type]  # all of these are metrics
    log.info("loss %.6f after %d steps", metrics.get("loss", math.nan), layout.steps)
    return metrics


def _round(
    learner: Learner,
    layout: Layout,
    steps: Sequence[int],
    examples: data.Examples,
    place: data.Place,
    group: Group,
    peers: dist.ProcessGroup,
) -> dict[str, float]:
    """Take the steps of a round.

    Return its metrics: the mean loss, the number of averages in pairs, and how many shares the fastest and
    the slowest rank have taken.
    """
    first, losses = place.taken, list[float]()
    gossip = Gossip(learner.model, peers, layout.seed + steps[0])
    sizes = [batch_size.at_step(step, layout) for step in steps]
    begins = [first + sum(size.batch_size for size in sizes[:index]) for index in range(len(sizes))]
    shares = Shares(steps[0], len(steps) * group.size, group)
    with gossip.answering():
        for number in shares:
            index, part = divmod(number, group.size)
            share = sizes[index].batch_size // group.size
            place.taken = begins[index] + part * share
            batch = examples.batch(place.take(share), group.device)
            gossip.read()
            loss = learner.find_gradients(batch, Position(steps[index], part * share))
            assert loss is not None  # the loss is None only in a pipeline
            gossip.exchange()
            rate = sizes[index].learning_rate
            gossip.step(lambda rate=rate: learner.step_alone(rate))  # type: ignore[misc]
            losses.append(loss)
    traffic.OF_PROCESS.add(gossip.sent_bytes)
    learner.flush()
    if group.is_master:  # all ranks have seen that no share is left: `flush` has waited for them
        shares.forget()
    place.taken = first + sum(size.batch_size for size in sizes)
    of_ranks = group.total(*(len(losses) if rank == group.rank else 0 for rank in range(group.size)))
    loss, asked = group.total(sum(losses), gossip.asked)
    return {
        "loss": loss / sum(of_ranks),
        "averages_in_pairs": asked,
        "shares_of_fastest": max(of_ranks),
        "shares_of_slowest": min(of_ranks),
    }


class Shares:
    """The shares of a round. Iterating takes shares; each share is taken by one rank only."""

    def __init__(self, first_step: int, count: int, group: Group) -> None:
        # PyTorch's store, through which the group met, has one count for all ranks: no other port is needed.
        self._store = dist.distributed_c10d._get_default_store()
        self._key = f"language_model/gossip/{first_step}"
        self._count = count
        self._rank, self._size = group.rank, group.size

    @property
    def taken(self) -> int:
        """The number of requests for shares, including refused requests and the first share of each rank."""
        return self._size + self._store.add(self._key, 0)

    def __iter__(self) -> Iterator[int]:
        # Each rank has one share of its own: ranks can average only if all of them have stepped.
        yield self._rank
        while (number := self._size + self._store.add(self._key, 1) - 1) < self._count:
            yield number

    def forget(self) -> None:
        """Delete the count of shares. Call this after all ranks have taken their shares."""
        self._store.delete_key(self._key)
