"""The reasons why the algorithm `language-model` cannot train with a layout."""

from collections.abc import Iterator
from typing import Final

from training_service.client.planning.costs import Layout, Training
from training_service.client.planning.reasons import VOCABULARY, parameters

_LARGEST: Final = {"HEADS": 10_000, "CONTEXT": 4095, "BATCH_SIZE": 1_000_000, "MICRO_BATCHES": 100_000}
"""The largest values that language-model accepts, for the parameters that a plan may set higher."""


def refusals(training: Training, layout: Layout) -> Iterator[str]:
    """Yield a sentence for each reason why `language-model` cannot train with this layout and its
    `parameters`; nothing if it can.

    The search does not apply these rules, because other programs may support such layouts. The rules are
    those of language_model/layout.py that a plan could break. They are repeated here, because the client
    does not have that module.
    """
    model, strategy = training.model, layout.strategy
    given = parameters(training, layout)
    for name, most in _LARGEST.items():
        if int(given.get(name, 0)) > most:
            yield f"language-model refuses {name}={given[name]}: at most {most} are allowed."
    if layout.context > 1:
        yield (
            f"language-model cannot divide sequences among {layout.context} devices: plan without "
            "--context-parallel."
        )
    if model.width % model.heads:
        yield (
            f"language-model refuses WIDTH={model.width} with HEADS={model.heads}: WIDTH must be a multiple "
            "of HEADS."
        )
    if VOCABULARY % layout.tensor:
        yield (
            f"language-model refuses TENSOR={layout.tensor}: it must divide its vocabulary of {VOCABULARY}."
        )
    stages = layout.pipeline * layout.stages
    if stages > model.layers:
        yield (
            f"language-model refuses LAYERS={model.layers} with {stages} stages: each stage needs a layer. "
            "Leave out SCHEDULE and STAGES_PER_RANK."
        )
    if training.precision == "fp16" and strategy != "ddp":
        yield (
            f"language-model refuses PRECISION=fp16 with STRATEGY={strategy}: it needs STRATEGY=ddp. Plan "
            "with --strategy ddp or --precision bf16."
        )
    flat = strategy in ("zero1", "zero2") and layout.data > 1
    if layout.offload == "optimizer" and (
        strategy in ("shard_grad_op", "zero3") or (layout.tensor > 1 and not flat)
    ):
        ranks = f"{layout.data} data rank{'s' if layout.data > 1 else ''}"
        yield (
            f"language-model refuses OFFLOAD=optimizer with STRATEGY={strategy}, TENSOR={layout.tensor} "
            f"and {ranks}: it needs TENSOR=1 and STRATEGY=ddp, or several data ranks and STRATEGY=zero1 or "
            "zero2. Plan with other values of --offload or --strategy."
        )
