"""The rules of pipelines: the layers of each stage, and the allowed combinations of parameters.

Like `layout`, this module does not need PyTorch.
"""

from typing import TYPE_CHECKING

from trainer_kit.errors import ParameterError

from language_model.choices import Offload, Precision, Schedule, Split, Strategy

if TYPE_CHECKING:
    from language_model.layout import Layout

WHOLE_BATCHES = (Schedule.NAIVE, Schedule.PIPEDREAM)
"""The schedules that do not divide a step's batch into micro-batches."""


def pipeline_fits(layout: "Layout") -> None:
    """Check the parameters of pipelines. Raises ParameterError, with the numbers and the rule."""
    _layers_fit(layout)
    if layout.pipeline > 1:
        if layout.loss_parallel:
            raise ParameterError(
                f"LOSS_PARALLEL cannot be combined with PIPELINE {layout.pipeline}: PyTorch's pipeline does "
                "not support scores that are divided among tensor ranks"
            )
        _micro_batches_fit(layout)
    if layout.is_asynchronous:
        _pipedream_fits(layout)


def _layers_fit(layout: "Layout") -> None:
    stages = f"{layout.stages} stages" + (
        f" (PIPELINE {layout.pipeline} x STAGES_PER_RANK {layout.stages_per_rank})"
        if layout.is_interleaved
        else " (PIPELINE)"
    )
    if layout.layers < layout.stages:
        raise ParameterError(f"LAYERS {layout.layers} is too low for {stages}: each stage needs a layer")
    if layout.split is Split.EVEN and layout.layers % layout.stages:
        raise ParameterError(
            f"LAYERS {layout.layers} cannot be divided evenly among {stages}: use a multiple or SPLIT=cost"
        )


def _micro_batches_fit(layout: "Layout") -> None:
    if layout.schedule in WHOLE_BATCHES:
        if layout.micro_batches > 1:
            raise ParameterError(
                f"SCHEDULE={layout.schedule} passes whole batches from stage to stage: MICRO_BATCHES must be "
                f"1, but is {layout.micro_batches}; gpipe, 1f1b and interleaved divide batches"
            )
        return
    if layout.is_interleaved and layout.micro_batches % layout.pipeline:
        raise ParameterError(
            f"MICRO_BATCHES {layout.micro_batches} is not a multiple of PIPELINE {layout.pipeline}, "
            "which SCHEDULE=interleaved requires"
        )
    if layout.micro_batches < layout.pipeline:
        raise ParameterError(
            f"MICRO_BATCHES {layout.micro_batches} is less than PIPELINE {layout.pipeline}: "
            "the stages would never all work at the same time"
        )


def _pipedream_fits(layout: "Layout") -> None:
    """Check the parameters of PipeDream, whose stages step at different times and keep copies of weights."""
    if layout.strategy is not Strategy.DDP:
        raise ParameterError(
            "SCHEDULE=pipedream keeps several versions of whole weights: it needs STRATEGY=ddp, but STRATEGY "
            f"is {layout.strategy}"
        )
    if layout.tensor > 1:
        raise ParameterError(
            "SCHEDULE=pipedream keeps several versions of whole weights: it needs TENSOR 1, but TENSOR is "
            f"{layout.tensor}"
        )
    if layout.precision is Precision.FP16:
        raise ParameterError(
            "SCHEDULE=pipedream cannot be combined with PRECISION=fp16: a scaler skips a step on all stages, "
            "but a stage of PipeDream steps before the others have gradients; use fp32 or bf16"
        )
    if layout.offload not in (Offload.NONE, Offload.OPTIMIZER):
        raise ParameterError(
            "SCHEDULE=pipedream keeps several versions of weights on the device: OFFLOAD must be none or "
            f"optimizer, but is {layout.offload}"
        )


def split(layers: int, stages: int, head_cost: float) -> tuple[range, ...]:
    """Divide consecutive layers among stages so that the maximum cost of a stage is minimal.

    A layer costs 1, and the head, which is in the last stage, costs `head_cost`. Among solutions with the
    same maximum, the one with the most layers in the last stage is returned.
    """
    last = min(
        range(1, layers - stages + 2) if stages > 1 else [layers],
        key=lambda mine: (max(mine + head_cost, -(-(layers - mine) // max(1, stages - 1))), -mine),
    )
    others = stages - 1
    sizes = [(layers - last) // others + (i < (layers - last) % others) for i in range(others)] + [last]
    starts = [sum(sizes[:index]) for index in range(stages)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))
