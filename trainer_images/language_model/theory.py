"""What a layout costs a rank, by formula: memory, traffic, and how long a pipeline's ranks wait.

* Rajbhandari et al., "ZeRO", SC 2020: the three stages keep (optimizer state), (and gradients), (and
  parameters) / N, and send 2, 2 and 3 (N-1)/N of the parameters; DistributedDataParallel sends 2.
* Patarasuk and Yuan, 2009: a ring sends 2 (n-1)/n of what is summed over n ranks.
* Shoeybi et al., "Megatron-LM", 2019: two sums of the activations in a layer's forward pass, two in its
  backward pass; Korthikanti et al., 2022: sequence parallel sends as much.
* Huang et al., "GPipe", 2019; Narayanan et al., 2021: p stages a rank of which wait (p-1)/(m+p-1) of the
  time with m micro-batches, and with v stages each (p-1)/(v m+p-1).

* Korthikanti et al., 2022, counts what a layer keeps for its backward pass; here it is counted for this
  model, whose attention keeps no scores: 16 vectors a token.

Needs no PyTorch. Bytes are those of fp32.
"""

from dataclasses import dataclass

from language_model.choices import Precision, Schedule, Strategy
from language_model.layout import VOCABULARY, Layout

FLOAT = 4
"""Bytes of a number in fp32."""
ADAM_MOMENTS = 2


@dataclass(frozen=True)
class Memory:
    """Bytes that a rank holds between steps; of pipeline ranks, the one that holds most."""

    parameters: float
    gradients: float
    optimizer: float


def parameters(layout: Layout) -> int:
    """How many the whole model has."""
    return sum(_parameters_of(layout, layers) for layers in layout.layers_of_stages)


def memory(layout: Layout) -> Memory:
    """What a rank holds of the model and for training it.

    Where parameters are sharded a rank holds its share of them between steps in stage 2 too, as
    fully_shard frees what it gathered; the ZeRO paper's stage 2 keeps them whole.
    """
    own = max(_of_rank(layout)) * FLOAT
    shared = own / layout.data
    held = shared if layout.is_sharded else own
    shares_optimizer = layout.is_sharded or layout.strategy is Strategy.ZERO1
    return Memory(held, held, ADAM_MOMENTS * (shared if shares_optimizer else own))


def bytes_sent(layout: Layout) -> float:
    """What a rank sends in a step, as the mean over all ranks; gradients that are not compressed."""
    return data_parallel_bytes(layout) + pipeline_bytes(layout) + tensor_bytes(layout)


def data_parallel_bytes(layout: Layout) -> float:
    """Of gradients and of what ZeRO shares out.

    Without a pipeline, each micro-batch gathers and scatters what is sharded; a pipeline adds gradients up
    to its last micro-batch, and so does DistributedDataParallel.
    """
    own = sum(_of_rank(layout)) / layout.pipeline * FLOAT
    share = (layout.data - 1) / layout.data
    passes = layout.micro_batches
    match layout.strategy:
        case Strategy.DDP:
            return 2 * share * own
        case Strategy.ZERO1:  # the sums of all gradients to all, then the parameters from who stepped them
            return 3 * share * own
        case Strategy.ZERO2:  # parameters for a step's passes, and the sums
            return (passes + passes if layout.pipeline == 1 else 2) * share * own
        case Strategy.PARAMETER_SERVER:  # weights to, and a gradient from each whose gradient counts
            return 2 * layout.rule.gradients / layout.world_size * own
        case Strategy.ZERO3:  # parameters for each forward and each backward pass, and the sums
            return (3 * passes if layout.pipeline == 1 else 2 * passes + 1) * share * own


def pipeline_bytes(layout: Layout) -> float:
    """Of activations to the next stage, and their gradients back."""
    borders = layout.stages - 1
    return 2 * borders * _activations(layout) * layout.micro_batches / layout.pipeline


def tensor_bytes(layout: Layout) -> float:
    """Of activations that tensor ranks sum: four times a layer; at the embedding twice, at the head once."""
    if layout.tensor == 1:
        return 0.0
    ring = 2 * (layout.tensor - 1) / layout.tensor
    of_layers = 4 * layout.layers * _activations(layout) * ring
    places = layout.context * layout.width * FLOAT
    of_embedding = (_activations(layout) + places) * ring
    examples = layout.batch_size / layout.data / layout.micro_batches
    scores = examples * layout.context * VOCABULARY * FLOAT
    # The whole scores are gathered, or of each row the highest, the sum and the target's.
    of_head = _activations(layout) * ring + (
        3 * scores / VOCABULARY * ring if layout.loss_parallel else scores * ring / 2
    )
    return layout.micro_batches * (of_layers + of_embedding + of_head) / layout.pipeline


def bubble(layout: Layout) -> float:
    """The share of its time that a pipeline's rank waits, if all passes of a kind take equally long."""
    waits = layout.pipeline - 1
    stages_each = layout.stages // layout.pipeline
    return waits / (stages_each * layout.micro_batches + waits)


def activations(layout: Layout) -> float:
    """Bytes that a rank keeps for the backward pass at the most; of pipeline ranks, the first or the last.

    A rank holds as many micro-batches as its pipeline is long from it on (1F1B), or all of them (GPipe).
    """
    width, per = layout.width, layout.tensor
    whole, cut = 4.0, 12.0  # vectors: inputs and outputs of norms; what lies between the matrices
    if layout.sequence_parallel:
        whole /= per
    of_layer = {"none": whole + cut / per, "selective": whole / 2 + 9 / per}.get(layout.checkpointing)
    stages = layout.layers_of_stages
    most = 0.0
    for rank in range(layout.pipeline):
        layers = sum(len(stage) for stage in stages[rank :: layout.pipeline])
        if of_layer is not None:
            vectors, again = layers * of_layer, 0.0
        else:
            vectors, again = _recomputing(layout, layers, whole + cut / per)
        waiting = layout.pipeline - rank if layout.schedule is not Schedule.GPIPE else layout.micro_batches
        held = min(waiting, layout.micro_batches) if layout.pipeline > 1 else 1
        tokens = layout.batch_size / layout.data / layout.micro_batches * layout.context
        head = 0.0
        if rank == layout.pipeline - 1:  # its norm, and scores, their logarithms and their gradient
            head = 2 * width + 3 * VOCABULARY / (per if layout.loss_parallel else 1)
        # The head is done before the first layer is computed anew.
        most = max(most, tokens * (held * vectors * width + max(head, again * width)) * FLOAT)
    return most * (0.5 if layout.precision is not Precision.FP32 else 1.0)


def gathered(layout: Layout) -> float:
    """Bytes of parameters that fully_shard has gathered at the most: all of a rank's, or two layers."""
    if not layout.is_sharded:
        return 0.0
    own = max(_of_rank(layout)) * FLOAT
    if layout.strategy is Strategy.ZERO2:
        return own
    return min(own, 2 * (12 * layout.width**2 / layout.tensor) * FLOAT)


def recomputed(layout: Layout) -> float:
    """Work that is done twice, as a share of a step's: multiplications, of which a forward pass has a third.

    PyTorch computes a layer anew up to what the backward pass needs, so not its last product.
    """
    if layout.checkpointing == "selective":
        return 0.02  # norms and sums, which multiply nothing, and take time all the same
    every = layout.recomputed_every
    if not every:
        return 0.0
    attention = 2 * layout.context * layout.width
    of_layer, again = 12 * layout.width**2 + attention, 8 * layout.width**2 + attention
    forward = layout.layers * of_layer + VOCABULARY * layout.width
    return -(-layout.layers // every) * again / (3 * forward)


def _recomputing(layout: Layout, layers: int, of_layer: float) -> tuple[float, float]:
    """Vectors a token that are kept if some layers keep their input only, and what one needs on its turn.

    Where others lie between, these have made room for it by then.
    """
    every = layout.recomputed_every
    again = -(-layers // every)
    gradients = 5.0  # of its widest vectors, as it goes through them
    return again + (layers - again) * of_layer, of_layer + gradients if every == 1 else 0.0


def _activations(layout: Layout) -> float:
    """Bytes between two layers, of a data rank's micro-batch."""
    examples = layout.batch_size / layout.data / layout.micro_batches
    return examples * layout.context * layout.width * FLOAT


def _of_rank(layout: Layout) -> list[float]:
    """Parameters of each pipeline rank's share, in each of its tensor ranks."""
    stages = layout.layers_of_stages
    return [
        sum(_parameters_of(layout, layers, layout.tensor) for layers in stages[rank :: layout.pipeline])
        for rank in range(layout.pipeline)
    ]


def _parameters_of(layout: Layout, layers: range, tensor: int = 1) -> int:
    """Of one stage: matrices are cut among tensor ranks, norms are not."""
    width = layout.width
    count = len(layers) * (12 * width**2 // tensor + 2 * width)
    if 0 in layers:
        count += (VOCABULARY + layout.context) * width // tensor
    if layout.layers - 1 in layers:
        count += VOCABULARY * width // tensor + width
    return count
