"""Formulas for the costs of a layout per rank: memory, traffic, and the waiting time of pipelines.

* Rajbhandari et al., "ZeRO", SC 2020: stage 1 divides the optimizer's state by N, stage 2 also gradients, and
  stage 3 also parameters. In these stages, a rank sends 2, 2 and 3 times (N-1)/N of the parameters. With
  DistributedDataParallel, a rank sends 2 times (N-1)/N of the parameters.
* Patarasuk and Yuan, 2009: in a ring of n ranks, each rank sends 2 (n-1)/n of the summed data.
* Shoeybi et al., "Megatron-LM", 2019: two sums of the activations in a layer's forward pass, and two in its
  backward pass. Korthikanti et al., 2022: sequence parallel sends the same amount.
* Huang et al., "GPipe", 2019; Narayanan et al., 2021: with p pipeline ranks and m micro-batches, a rank waits
  (p-1)/(m+p-1) of the time, or (p-1)/(v m+p-1) with v stages per rank. Naive model parallelism: m = 1.
* Narayanan et al., "PipeDream", SOSP 2019: stage i of k (from 0) keeps k-i versions of its weights, and its
  gradients were computed with its weights of k-1-i steps ago.
* Korthikanti et al., 2022, count what a layer keeps for its backward pass: see `activation_theory`.

This module does not need PyTorch. Sizes are in bytes. Each number counts as fp32, with 4 bytes. With
PRECISION=bf16 or fp16, `activations` counts 2 bytes per number instead, except with OFFLOAD=layers.
"""

from dataclasses import dataclass

from language_model import activation_theory
from language_model.activation_theory import FLOAT
from language_model.choices import Offload, Precision, Schedule, Stepping, Strategy
from language_model.layout import VOCABULARY, Layout

ADAM_MOMENTS = 2


def moments(layout: Layout) -> int:
    """Return how many numbers the optimizer keeps for each parameter."""
    return ADAM_MOMENTS if layout.optimizer is Stepping.ADAMW else 0


@dataclass(frozen=True)
class Memory:
    """Memory of a rank between steps in bytes, for the pipeline rank that needs the most."""

    parameters: float
    gradients: float
    optimizer: float


def parameters(layout: Layout) -> int:
    """Return the number of parameters of the whole model."""
    return sum(_parameters_of(layout, layers) for layers in layout.layers_of_stages)


def memory(layout: Layout) -> Memory:
    """Return the memory of a rank for the model and its training.

    The gradients are those with which the optimizer steps; for the gradients of a backward pass, see
    `gathered`. fully_shard frees the gathered parameters, so between steps a rank holds only its share of the
    parameters.
    """
    own = max(_of_rank(layout)) * FLOAT
    if layout.is_asynchronous:
        kept = max(weight_versions(layout, rank) * of for rank, of in enumerate(_of_rank(layout))) * FLOAT
        return Memory(kept, own, moments(layout) * own)
    shared = own / layout.data
    held = shared if layout.is_sharded else own
    gradients = shared if layout.strategy is Strategy.ZERO2 else held
    shares_optimizer = layout.is_sharded or layout.strategy in (
        Strategy.ZERO1,
        Strategy.ZERO2,
        Strategy.ZERO_REDUNDANCY_OPTIMIZER,
    )
    return Memory(held, gradients, moments(layout) * (shared if shares_optimizer else own))


def weight_versions(layout: Layout, rank: int) -> int:
    """Return how many versions of weights a pipeline rank keeps: with PipeDream, one per batch in flight."""
    return layout.pipeline - rank if layout.is_asynchronous else 1


def staleness(layout: Layout, rank: int) -> int:
    """Return the number of steps that a rank takes between a forward pass and the step with its gradient."""
    return weight_versions(layout, rank) - 1


def bytes_sent(layout: Layout) -> float:
    """Return the bytes that a rank sends per step, on average, without compression of gradients."""
    return data_parallel_bytes(layout) + pipeline_bytes(layout) + tensor_bytes(layout)


def data_parallel_bytes(layout: Layout) -> float:
    """Return the bytes that a rank sends per step for data parallelism: gradients, weights and moments.

    Without a pipeline, fully_shard gathers and scatters its shards for each micro-batch. Pipelines and
    DistributedDataParallel accumulate gradients until the last micro-batch.
    """
    own = sum(_of_rank(layout)) / layout.pipeline * FLOAT
    share = (layout.data - 1) / layout.data
    passes = layout.micro_batches
    match layout.strategy:
        case Strategy.DDP:
            return 2 * share * own
        case Strategy.AVERAGING:  # weights and moments, once in LOCAL_STEPS steps
            return 2 * share * own * (1 + moments(layout)) / layout.local_steps
        case Strategy.GOSSIP:  # as AVERAGING, plus weights both ways for each gradient of an active rank
            in_pairs = 2 * -(-layout.data // 2) / layout.data if layout.data > 1 else 0
            return own * (in_pairs + 2 * share * (1 + moments(layout)) / layout.local_steps)
        case Strategy.ZERO1 | Strategy.ZERO2:  # gradients to their owners, then the updated parameters to all
            return 2 * share * own
        case Strategy.ZERO_REDUNDANCY_OPTIMIZER:  # an all-reduce of gradients, then the updated parameters
            return 3 * share * own
        case Strategy.SHARD_GRAD_OP:  # parameters once for both passes, and sums of gradients
            return (passes + passes if layout.pipeline == 1 else 2) * share * own
        # For each applied gradient: weights to the worker, its gradient back, and a copy to the standbys.
        case Strategy.PARAMETER_SERVER:
            return (3 if layout.standby else 2) * layout.rule.gradients / layout.world_size * own
        case Strategy.ZERO3:  # parameters for each forward and backward pass, and sums of gradients
            return (3 * passes if layout.pipeline == 1 else 2 * passes + 1) * share * own


def pipeline_bytes(layout: Layout) -> float:
    """Return the bytes that a rank sends per step, on average, for activations and their gradients."""
    borders = layout.stages - 1
    divided = layout.tensor if layout.sequence_parallel else 1
    return 2 * borders * _activations(layout) / divided * layout.micro_batches / layout.pipeline


def pipeline_messages(layout: Layout) -> float:
    """Return the number of messages that a pipeline rank sends per step, on average.

    The messages contain activations or their gradients. PipeDream does not divide the batch, so it
    has one micro-batch per step.
    """
    return 2 * (layout.stages - 1) * layout.micro_batches / layout.pipeline


def tensor_bytes(layout: Layout) -> float:
    """Return the bytes that a rank sends per step, on average, for sums over tensor ranks.

    There are four sums per layer, two in the embedding, and one in the head.
    """
    if layout.tensor == 1:
        return 0.0
    ring = 2 * (layout.tensor - 1) / layout.tensor
    of_layers = 4 * layout.layers * _activations(layout) * ring
    places = layout.context * layout.width * FLOAT
    of_embedding = (_activations(layout) + places) * ring
    examples = layout.batch_size / layout.data / layout.micro_batches
    scores = examples * layout.context * VOCABULARY * FLOAT
    # With LOSS_PARALLEL, three numbers per token are reduced: the maximum, the sum and the target's score.
    # Otherwise, all scores are gathered.
    of_head = _activations(layout) * ring + (
        3 * scores / VOCABULARY * ring if layout.loss_parallel else scores * ring / 2
    )
    return layout.micro_batches * (of_layers + of_embedding + of_head) / layout.pipeline


def bubble(layout: Layout) -> float:
    """Return the share of time that a pipeline rank waits if all passes of a kind take the same time.

    Naive model parallelism has one micro-batch, so this is 1-1/p. PipeDream waits only to fill and to drain
    the pipeline, once in all steps.
    """
    waits = layout.pipeline - 1
    if layout.is_asynchronous:
        return waits / (layout.steps + waits)
    stages_each = layout.stages // layout.pipeline
    return waits / (stages_each * layout.micro_batches + waits)


def activations(layout: Layout) -> float:
    """Return the peak memory of activations in bytes, for the pipeline rank that needs the most.

    With OFFLOAD=layers, this includes the weights and gradients of the layer on the device.
    """
    if layout.is_layer_by_layer:
        return activation_theory.layer_by_layer(layout)
    is_on_host = layout.offload is Offload.ACTIVATIONS
    again = activation_theory.on_device(layout) if is_on_host else activation_theory.of_backward(layout)
    stages = layout.layers_of_stages
    most = 0.0
    for rank in range(layout.pipeline):
        layers = sum(len(stage) for stage in stages[rank :: layout.pipeline])
        numbers = 0.0 if is_on_host else activation_theory.kept(layout, layers, has_embedding=rank == 0)
        held = micro_batches_held(layout, rank)
        tokens = layout.batch_size / layout.data / layout.micro_batches * layout.context
        head = activation_theory.of_head(layout) if rank == layout.pipeline - 1 else 0.0
        # The head is finished before the first layer is recomputed, so only the larger of the two counts.
        most = max(most, tokens * (held * numbers + max(head, again)) * FLOAT)
    return most * (0.5 if layout.precision is not Precision.FP32 else 1.0)


def micro_batches_held(layout: Layout, rank: int) -> float:
    """Return the largest number of micro-batches whose activations a pipeline rank holds at once.

    The activations of a micro-batch in all layers of the rank count as 1.

    With 1F1B, a rank holds one micro-batch for itself and one for each later rank. With GPipe, it holds all
    micro-batches. With PipeDream, it holds as many batches as versions of weights. If stages are interleaved,
    a rank holds parts of micro-batches: before its first backward pass, it does (v-1) p + 2 (p-1-rank) + 1
    forward passes of a v-th of its layers. On the first rank, that is 1 + (p-1)/(p v) times the memory of
    1F1B (Narayanan et al., 2021; Korthikanti et al., 2022).
    """
    if layout.pipeline == 1:
        return 1
    if layout.is_asynchronous:
        return weight_versions(layout, rank)
    if layout.schedule is Schedule.GPIPE:
        return layout.micro_batches
    later = layout.pipeline - 1 - rank
    if layout.is_interleaved:
        parts = layout.stages // layout.pipeline
        passes = (parts - 1) * layout.pipeline + 2 * later + 1
        return min(passes / parts, layout.micro_batches)
    return min(later + 1, layout.micro_batches)


def offloaded(layout: Layout) -> tuple[float, float]:
    """Return the bytes that a rank copies in a step to the host, and to its device.

    With OFFLOAD=layers, each layer's weights and inputs are copied to the device for both passes, and the
    gradients of its outputs for the backward pass. The layer's outputs, and the gradients of its inputs and
    weights, are copied to the host. The copies of OFFLOAD=parameters are not counted: fully_shard makes them.
    """
    match layout.offload:
        case Offload.OPTIMIZER:
            return memory(layout).optimizer, memory(layout).optimizer
        case Offload.ACTIVATIONS:
            return activation_theory.offloaded(layout), activation_theory.offloaded(layout)
        case Offload.LAYERS:
            everything = parameters(layout) * FLOAT
            head = (VOCABULARY + 1) * layout.width * FLOAT
            between = _activations(layout) * layout.micro_batches
            to_host = everything + between * (2 * layout.layers + 2)
            return to_host, 2 * everything - head + between * (3 * layout.layers + 2)
        case _:
            return 0.0, 0.0


def gathered(layout: Layout) -> float:
    """Return the peak memory in bytes that sharded tensors need during the passes, in addition to `memory`.

    fully_shard gathers all parameters of a rank (shard_grad_op), or two layers at a time (zero3). With zero2
    and several micro-batches, each rank holds the gradients of all its parameters until the last micro-batch.
    With zero2 and one micro-batch, a rank holds two buckets, one of which is being reduced.
    """
    own = max(_of_rank(layout)) * FLOAT
    if layout.strategy is Strategy.ZERO2:
        rest = own - own / layout.data
        return rest if layout.micro_batches > 1 else min(rest, 2 * layout.bucket_mb * 2**20)
    if not layout.is_sharded:
        return 0.0
    if layout.strategy is Strategy.SHARD_GRAD_OP:
        return own
    return min(own, 2 * (12 * layout.width**2 / layout.tensor) * FLOAT)


def recomputed(layout: Layout) -> float:
    """Return the recomputed multiplications as a share of a step's multiplications.

    A forward pass has a third of a step's multiplications. PyTorch recomputes a layer only as far as the
    backward pass needs it, so the layer's last product is not recomputed.
    """
    if layout.checkpointing == "keep_products":
        return 0.02  # norms and sums have no multiplications, but take time
    scores = layout.context * layout.width
    of_layer = 12 * layout.width**2 + 2 * scores
    forward = layout.layers * of_layer + VOCABULARY * layout.width
    if layout.is_layer_by_layer:
        return layout.layers * of_layer / (3 * forward)
    if layout.checkpointing == "selective":  # the scores, but not the sum of values
        return layout.layers * scores / (3 * forward)
    every = layout.recomputed_every
    if not every:
        return 0.0
    return -(-layout.layers // every) * (of_layer - 4 * layout.width**2) / (3 * forward)


def _activations(layout: Layout) -> float:
    """Return the bytes of the activations between two layers, for one micro-batch of a data rank."""
    examples = layout.batch_size / layout.data / layout.micro_batches
    return examples * layout.context * layout.width * FLOAT


def _of_rank(layout: Layout) -> list[float]:
    """Return the number of parameters per tensor rank, for each pipeline rank."""
    stages = layout.layers_of_stages
    return [
        sum(_parameters_of(layout, layers, layout.tensor) for layers in stages[rank :: layout.pipeline])
        for rank in range(layout.pipeline)
    ]


def _parameters_of(layout: Layout, layers: range, tensor: int = 1) -> int:
    """Return the number of parameters of a stage with these layers, per tensor rank.

    Matrices are divided, norms are not.
    """
    width = layout.width
    count = len(layers) * (12 * width**2 // tensor + 2 * width)
    if 0 in layers:
        count += (VOCABULARY + layout.context) * width // tensor
    if layout.layers - 1 in layers:
        count += VOCABULARY * width // tensor + width
    return count
