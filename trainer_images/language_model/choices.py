"""What a training of the language model may choose from: a name for each, as its parameters have them."""

from enum import StrEnum


class Strategy(StrEnum):
    """What the data ranks share out, beside the batch."""

    DDP = "ddp"
    """Nothing: each has the whole model and averages gradients (DistributedDataParallel)."""
    ZERO1 = "zero1"
    """The optimizer's state (ZeroRedundancyOptimizer)."""
    ZERO2 = "zero2"
    """And gradients (fully_shard; parameters stay gathered from the forward to the backward pass)."""
    ZERO3 = "zero3"
    """And parameters (fully_shard; gathered layer by layer, twice)."""
    PARAMETER_SERVER = "parameter_server"
    """Nothing: rank 0 holds the weights and computes no gradients, the others send it theirs."""


class Schedule(StrEnum):
    """In which order a pipeline's stages do the passes of their micro-batches."""

    GPIPE = "gpipe"
    """All forward passes, then all backward passes."""
    ONE_FORWARD_ONE_BACKWARD = "1f1b"
    """A backward pass as soon as one can be, so that few micro-batches are held."""
    INTERLEAVED = "interleaved"
    """The same with several smaller stages a rank, so that they wait less."""


class Split(StrEnum):
    """How layers are shared out to stages."""

    EVEN = "even"
    """The same number to each."""
    COST = "cost"
    """So that the stage with the most multiplications has as few as can be."""


class Precision(StrEnum):
    """In what the passes compute; parameters and the optimizer stay fp32."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    """With a scaler, on GPUs only."""


class Offload(StrEnum):
    """What is kept in the memory of the host while the device does not need it."""

    NONE = "none"
    PARAMETERS = "parameters"
    """Parameters, gradients and the optimizer's state, which then steps on the host."""
    OPTIMIZER = "optimizer"
    """The optimizer's state, brought to the device for each step."""


class Compression(StrEnum):
    """How gradients are made smaller before they are sent."""

    NONE = "none"
    FP16 = "fp16"
    BF16 = "bf16"
    POWERSGD = "powersgd"


class RateScaling(StrEnum):
    """How LR, which was found for REFERENCE_BATCH_SIZE, is carried over to BATCH_SIZE."""

    NONE = "none"
    LINEAR = "linear"
    SQRT = "sqrt"
