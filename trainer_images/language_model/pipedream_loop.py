"""The training loop of an asynchronous pipeline, in which ranks do not wait for each other after a step.

A rank reports the losses of the batches with which it has stepped. The first stage, to which rank 0 belongs,
is the last one to step with a batch. Before a checkpoint, the pipeline is flushed, so that all stages have
taken the same steps. Then the pipeline fills again.
"""

import logging
import math
from contextlib import nullcontext

from torch import Tensor
from trainer_kit import checkpoints
from trainer_kit.group import Group
from trainer_kit.progress import Reporter

from language_model import batch_size, counting, data
from language_model.assembly import Learner
from language_model.layout import Layout

log = logging.getLogger(__name__)


def fit(
    learner: Learner, layout: Layout, blocks: Tensor, group: Group, reporter: Reporter
) -> dict[str, float]:
    """Take the remaining steps, and return the last reported metrics."""
    stage = learner.stage
    assert stage is not None
    examples = data.Examples(blocks, layout.context)
    place = data.Place(len(examples), layout.seed)
    metrics: dict[str, float] = {}
    with checkpoints.kept(
        group, learner.model, learner.optimizer, before_save=learner.flush, place=place
    ) as run:
        first, stage.versions.updates = run.steps + 1, run.steps
        measured = min(first + counting.counted_step(layout) - 1, layout.steps)

        def report() -> None:
            for update in stage.steps_taken():
                metrics["loss"] = update.loss
                metrics["staleness_max"] = max(stage.staleness)
                taken = batch_size.at_step(update.number, layout).batch_size
                reporter.report(step=update.number, total_steps=layout.steps, examples=taken)
                reporter.report(**metrics)  # type: ignore[arg-type]  # all of these are metrics

        for step in range(first, layout.steps + 1):
            size = batch_size.at_step(step, layout)
            batch = examples.batch(place.take(size.batch_size), group.device)
            with counting.counted(learner, group, metrics) if step == measured else nullcontext():
                learner.learn(batch, size.learning_rate, step)
            report()
            run.step()
        learner.flush()
        report()
    log.info("loss %.6f after %d steps", metrics.get("loss", math.nan), layout.steps)
    return metrics | _staleness(stage.staleness, group)


def _staleness(of_stage: dict[int, int], group: Group) -> dict[str, float]:
    """Return the mean and the maximum of the staleness over all steps of all stages."""
    steps = ", ".join(f"{count} of staleness {value}" for value, count in sorted(of_stage.items()))
    log.info("steps of this stage: %s", steps or "none")
    total, count = group.total(
        sum(value * count for value, count in of_stage.items()), sum(of_stage.values())
    )
    highest = group.total(
        *(max(of_stage, default=0) if rank == group.rank else 0 for rank in range(group.size))
    )
    return {"staleness_mean": total / count if count else 0.0, "staleness_max": max(highest)}
