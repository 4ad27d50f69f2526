"""The parameters of every strategy, besides those of the tiny model, by the size of its group."""

PIPELINE = {"PIPELINE": "2", "MICRO_BATCHES": "4"}
NAIVE = {"PIPELINE": "2", "SCHEDULE": "naive"}
PIPEDREAM = {"PIPELINE": "2", "SCHEDULE": "pipedream"}
TENSOR = {"TENSOR": "2"}
SEQUENCE = {**TENSOR, "SEQUENCE_PARALLEL": "true"}

ALONE: dict[str, dict[str, str]] = {
    "alone": {},
    "one layer": {"OFFLOAD": "layers"},
    "one layer, accumulated": {"OFFLOAD": "layers", "MICRO_BATCHES": "4"},
    "activations offloaded": {"OFFLOAD": "activations"},
    "optimizer offloaded": {"OFFLOAD": "optimizer"},
}
"""Layouts of one process. The others are compared with the first one."""

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
        "activations offloaded": {"OFFLOAD": "activations"},
        "recomputed, inputs offloaded": {"OFFLOAD": "activations", "CHECKPOINTING": "full"},
        "zero3, activations offloaded": {"STRATEGY": "zero3", "OFFLOAD": "activations"},
        "one layer": {"OFFLOAD": "layers"},
        "one layer, accumulated": {"OFFLOAD": "layers", "MICRO_BATCHES": "4"},
        "recomputed": {"CHECKPOINTING": "full"},
        "recomputed, each second": {"CHECKPOINTING": "every:2"},
        "attention recomputed": {"CHECKPOINTING": "selective"},
        "scores kept": {"ATTENTION": "explicit"},
        "recomputed but products": {"CHECKPOINTING": "keep_products"},
        "zero3, recomputed": {"STRATEGY": "zero3", "CHECKPOINTING": "full"},
        "naive": NAIVE,
        "gpipe": {**PIPELINE, "SCHEDULE": "gpipe"},
        "1f1b": PIPELINE,
        "interleaved": {**PIPELINE, "SCHEDULE": "interleaved"},
        "1f1b, activations offloaded": {**PIPELINE, "OFFLOAD": "activations"},
        "tensor": TENSOR,
        "sequence, attention recomputed": {**SEQUENCE, "CHECKPOINTING": "selective"},
        "sequence, activations offloaded": {**SEQUENCE, "OFFLOAD": "activations"},
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
        "naive by 4": {**NAIVE, "PIPELINE": "4"},
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
        "pipeline x sequence": {**PIPELINE, **SEQUENCE},
    },
    8: {"pipeline x data x tensor": {**PIPELINE, **TENSOR}},
}
"""Strategies whose computation differs from that of one process only in the order of sums."""

RATE = {"DROPOUT": "0.2"}
DROPPED: dict[int, dict[str, dict[str, str]]] = {
    1: {"dropout": RATE, "dropout, one layer": {**RATE, "OFFLOAD": "layers", "MICRO_BATCHES": "2"}},
    2: {
        "dropout, ddp": {**RATE, "MICRO_BATCHES": "2"},
        "dropout, recomputed": {**RATE, "CHECKPOINTING": "full"},
        "dropout, zero1": {**RATE, "STRATEGY": "zero1", "CHECKPOINTING": "selective"},
        "dropout, zero3": {**RATE, "STRATEGY": "zero3", "CHECKPOINTING": "full"},
        "dropout, gpipe": {**RATE, **PIPELINE, "SCHEDULE": "gpipe", "CHECKPOINTING": "full"},
        "dropout, 1f1b": {**RATE, **PIPELINE, "CHECKPOINTING": "selective"},
        "dropout, interleaved": {**RATE, **PIPELINE, "SCHEDULE": "interleaved"},
        "dropout, tensor": {**RATE, **TENSOR, "CHECKPOINTING": "selective"},
        "dropout, sequence": {**RATE, **SEQUENCE, "CHECKPOINTING": "full"},
        "dropout, one layer": {**RATE, "OFFLOAD": "layers"},
        "dropout, activations offloaded": {**RATE, "OFFLOAD": "activations"},
    },
    4: {"dropout, pipeline x sequence": {**RATE, **PIPELINE, **SEQUENCE}},
}
"""Strategies with dropout, which are as exact as the others: the masks do not depend on the layout."""

GROWTH = {"GROW_AT": "3,5"}
GROWN: dict[int, dict[str, dict[str, str]]] = {
    1: {"grown": GROWTH},
    2: {
        "grown, zero2": {**GROWTH, "STRATEGY": "zero2", "MICRO_BATCHES": "2"},
        "grown, one layer": {**GROWTH, "OFFLOAD": "layers", "MICRO_BATCHES": "2"},
        "grown, naive": {**GROWTH, **NAIVE},
        "grown, 1f1b": {**GROWTH, **PIPELINE},
        "grown, interleaved": {**GROWTH, **PIPELINE, "SCHEDULE": "interleaved"},
    },
}
"""Strategies whose batches grow. These are as exact as the others."""

ROUNDED: dict[int, dict[str, dict[str, str]]] = {
    2: {
        "bf16": {"PRECISION": "bf16"},
        "fp16": {"PRECISION": "fp16"},
        "pipeline, fp16": {**PIPELINE, "PRECISION": "fp16"},
        "tensor, fp16": {**TENSOR, "PRECISION": "fp16"},
        "zero2, bf16": {"STRATEGY": "zero2", "PRECISION": "bf16"},
        "zero3, bf16": {"STRATEGY": "zero3", "PRECISION": "bf16"},
        "gradients in fp16": {"GRADIENT_COMPRESSION": "fp16"},
        "gradients in bf16": {"GRADIENT_COMPRESSION": "bf16"},
    }
}
"""Strategies that compute or send with less precision."""

LOSSY: dict[int, dict[str, dict[str, str]]] = {2: {"powersgd": {"GRADIENT_COMPRESSION": "powersgd"}}}
"""Strategies that omit information, but still learn."""
