"""The possible values of those parameters of the language model whose values are names."""

from enum import StrEnum


class Strategy(StrEnum):
    """The parts of the training that are divided among the data ranks. The batch is always divided."""

    DDP = "ddp"
    """Nothing: each rank has the whole model, and gradients are averaged (DistributedDataParallel)."""
    ZERO1 = "zero1"
    """The optimizer's state. Gradients are reduce-scattered (ZeRO, stage 1)."""
    ZERO2 = "zero2"
    """The optimizer's state and the gradients: each bucket is reduced to its owner (ZeRO, stage 2)."""
    ZERO_REDUNDANCY_OPTIMIZER = "zero_redundancy_optimizer"
    """The optimizer's state. Gradients are averaged on all ranks (PyTorch's ZeroRedundancyOptimizer)."""
    SHARD_GRAD_OP = "shard_grad_op"
    """The optimizer's state, the gradients, and between steps the parameters (fully_shard). Parameters are
    gathered once for both passes."""
    ZERO3 = "zero3"
    """The optimizer's state, the gradients and the parameters (fully_shard). Parameters are gathered layer
    by layer, for each pass."""
    AVERAGING = "averaging"
    """Nothing: each rank takes LOCAL_STEPS steps with its own gradients, then all average their weights."""
    GOSSIP = "gossip"
    """Nothing: each rank steps with its own gradients, and averages its weights with one rank at a time."""
    PARAMETER_SERVER = "parameter_server"
    """Nothing: workers compute gradients, and parameter servers update the weights with them."""


class Stepping(StrEnum):
    """The rule by which the optimizer changes weights."""

    ADAMW = "adamw"
    SGD = "sgd"
    """Without momentum."""


class Schedule(StrEnum):
    """The order of the passes of micro-batches in a pipeline's stages."""

    NAIVE = "naive"
    """Naive model parallelism: a whole batch passes from stage to stage. Only one stage works at a time."""
    GPIPE = "gpipe"
    """All forward passes, then all backward passes."""
    ONE_FORWARD_ONE_BACKWARD = "1f1b"
    """Each backward pass runs as early as possible, so that few micro-batches are in memory."""
    INTERLEAVED = "interleaved"
    """Like 1f1b with several smaller stages per rank, so that ranks wait less."""
    PIPEDREAM = "pipedream"
    """1F1B over several steps, asynchronous: each stage steps after each of its backward passes."""


class Split(StrEnum):
    """The division of layers among stages."""

    EVEN = "even"
    """The same number of layers for each stage."""
    COST = "cost"
    """The largest number of multiplications of any stage is as small as possible."""


class Precision(StrEnum):
    """The number format of the passes. Parameters and the optimizer stay in fp32."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    """With a scale of the loss, which all ranks change together."""


class Attention(StrEnum):
    """The way in which the core of attention is computed."""

    FUSED = "fused"
    """In one kernel, which keeps no scores.

    If another parameter needs separate operations, this is the same as `explicit`.
    """
    EXPLICIT = "explicit"
    """Scores, softmax, dropout and the sum of values one by one, as in Korthikanti et al., 2022."""


class Offload(StrEnum):
    """The data that is kept in the host's memory while the device does not need it."""

    NONE = "none"
    PARAMETERS = "parameters"
    """The shards of parameters, gradients and the optimizer's state. The optimizer steps on the host."""
    OPTIMIZER = "optimizer"
    """The optimizer's state, which is copied to the device for each step."""
    ACTIVATIONS = "activations"
    """The tensors that a forward pass saves for the backward pass."""
    LAYERS = "layers"
    """Everything except one layer and its activations for one micro-batch (L2L)."""


class RateScaling(StrEnum):
    """The rule by which LR, which was found for REFERENCE_BATCH_SIZE, is scaled to BATCH_SIZE."""

    NONE = "none"
    LINEAR = "linear"
    SQRT = "sqrt"
