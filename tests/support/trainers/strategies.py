"""The parameters of every strategy, besides those of the tiny model, by the size of its group."""

PIPELINE = {"PIPELINE": "2", "MICRO_BATCHES": "4"}
TENSOR = {"TENSOR": "2"}
SEQUENCE = {**TENSOR, "SEQUENCE_PARALLEL": "true"}

EXACT: dict[int, dict[str, dict[str, str]]] = {
    2: {
        "ddp": {},
        "ddp, accumulated": {"MICRO_BATCHES": "2"},
        "zero1": {"STRATEGY": "zero1"},
        "zero1, accumulated": {"STRATEGY": "zero1", "MICRO_BATCHES": "2"},
        "zero1, recomputed": {"STRATEGY": "zero1", "CHECKPOINTING": "full"},
        "zero1, offloaded": {"STRATEGY": "zero1", "OFFLOAD": "optimizer"},
        "zero2": {"STRATEGY": "zero2"},
        "zero2, accumulated": {"STRATEGY": "zero2", "MICRO_BATCHES": "2"},
        "zero redundancy optimizer": {"STRATEGY": "zero_redundancy_optimizer"},
        "shard grad op": {"STRATEGY": "shard_grad_op"},
        "zero3": {"STRATEGY": "zero3"},
        "zero3, accumulated": {"STRATEGY": "zero3", "MICRO_BATCHES": "2"},
        "zero3, offloaded": {"STRATEGY": "zero3", "OFFLOAD": "parameters"},
        "optimizer offloaded": {"OFFLOAD": "optimizer"},
        "recomputed": {"CHECKPOINTING": "full"},
        "recomputed, each second": {"CHECKPOINTING": "every:2"},
        "recomputed but products": {"CHECKPOINTING": "selective"},
        "zero3, recomputed": {"STRATEGY": "zero3", "CHECKPOINTING": "full"},
        "gpipe": {**PIPELINE, "SCHEDULE": "gpipe"},
        "1f1b": PIPELINE,
        "interleaved": {**PIPELINE, "SCHEDULE": "interleaved"},
        "tensor": TENSOR,
        "sequence": SEQUENCE,
        "loss": {**SEQUENCE, "LOSS_PARALLEL": "true"},
    },
    3: {"pipeline by cost": {"PIPELINE": "3", "MICRO_BATCHES": "4", "SPLIT": "cost"}},
    4: {
        "ring": {"ALL_REDUCE": "ring"},
        "halving and doubling": {"ALL_REDUCE": "halving_doubling"},
        "hierarchical": {"ALL_REDUCE": "hierarchical", "NODE_SIZE": "2"},
        "torus": {"ALL_REDUCE": "torus"},
        "zero1 by 4": {"STRATEGY": "zero1"},
        "zero2 by 4": {"STRATEGY": "zero2"},
        "data x tensor": TENSOR,
        "zero3 x sequence": {**SEQUENCE, "STRATEGY": "zero3"},
        "pipeline x data": PIPELINE,
        "pipeline x zero1": {**PIPELINE, "STRATEGY": "zero1"},
        "pipeline x zero redundancy optimizer": {**PIPELINE, "STRATEGY": "zero_redundancy_optimizer"},
        "pipeline x zero2": {**PIPELINE, "STRATEGY": "zero2"},
        "interleaved x zero2": {**PIPELINE, "STRATEGY": "zero2", "SCHEDULE": "interleaved"},
        "pipeline x shard grad op": {**PIPELINE, "STRATEGY": "shard_grad_op"},
        "zero1 x sequence": {**SEQUENCE, "STRATEGY": "zero1"},
        "zero2 x tensor, accumulated": {**TENSOR, "STRATEGY": "zero2", "MICRO_BATCHES": "2"},
        "pipeline x zero3": {**PIPELINE, "STRATEGY": "zero3"},
        "pipeline x tensor": {**PIPELINE, **TENSOR},
    },
}
"""Strategies that differ from one process only in the order of sums."""

ROUNDED: dict[int, dict[str, dict[str, str]]] = {
    2: {
        "bf16": {"PRECISION": "bf16"},
        "zero2, bf16": {"STRATEGY": "zero2", "PRECISION": "bf16"},
        "zero3, bf16": {"STRATEGY": "zero3", "PRECISION": "bf16"},
        "gradients in fp16": {"GRADIENT_COMPRESSION": "fp16"},
        "gradients in bf16": {"GRADIENT_COMPRESSION": "bf16"},
    }
}
"""Strategies that round on purpose."""

LOSSY: dict[int, dict[str, dict[str, str]]] = {2: {"powersgd": {"GRADIENT_COMPRESSION": "powersgd"}}}
"""Strategies that omit information, but still learn."""
