"""Memory and time of one layout of a training run.

Sources: Rajbhandari et al., *ZeRO*, SC 2020 (states, traffic); Narayanan et al., SC 2021 (waiting of
pipelines, traffic of tensor and pipeline ranks); Korthikanti et al., 2022 (activations, sequence
parallelism); Dubey et al., *The Llama 3 herd of models*, 2024, section 3.3.2 (context parallelism); Li et
al., *PyTorch distributed*, VLDB 2020 (gradients that are sent during the backward pass).
"""

from dataclasses import dataclass
from functools import lru_cache

from training_service.client.planning.cluster import Cluster, all_reduce, gathering
from training_service.client.planning.model import Model

OVERLAP = 0.5
"""The share of the passes' time that can overlap with traffic of data ranks.

Li et al., 2020, section 5.2, measure that between a third and all of the traffic overlaps with passes.
"""

RESERVE = 0.1
"""The share of a device's memory for the runtime: its context, buffers of collectives, and fragmentation."""

STRATEGIES = ("ddp", "zero1", "zero2", "shard_grad_op", "zero3")
RECOMPUTATIONS = ("none", "full")
OFFLOADS = ("none", "optimizer", "activations")
PRECISIONS = {"fp32": 4, "bf16": 2, "fp16": 2}
"""The bytes of one value in the forward and backward passes."""
MOMENTS = {"adam": 2, "adamw": 2, "momentum": 1, "sgd": 0}
"""The number of fp32 values that an optimizer keeps for each parameter."""


@dataclass(frozen=True)
class Training:
    """A training run: its model, its batch, and how it is computed."""

    model: Model
    batch: int
    """The number of examples of a step, on all ranks together."""
    precision: str = "bf16"
    optimizer: str = "adam"

    def __post_init__(self) -> None:
        """Check the values. Raises ValueError, which names the value."""
        if not 1 <= self.batch <= 10**9:
            raise ValueError(f"batch is {self.batch:g}; it must be from 1 to 1e9 examples")
        for name, allowed in (("precision", PRECISIONS), ("optimizer", MOMENTS)):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} is '{value}'; it must be one of {', '.join(allowed)}")

    @property
    def number(self) -> int:
        """The bytes of one value in the forward and backward passes."""
        return PRECISIONS[self.precision]

    @property
    def states(self) -> tuple[int, int, int]:
        """The bytes of a parameter, of its gradient, and of its state in the optimizer.

        With bf16 or fp16, gradients are added in fp32, and the optimizer keeps a copy of the parameters in
        fp32: 2 + 4 + 12 for Adam, as in Megatron-LM (its documentation of the distributed optimizer).
        """
        mixed = self.number < 4
        return self.number, 4, 4 * MOMENTS[self.optimizer] + (4 if mixed else 0)

    @property
    def states_bytes(self) -> int:
        """Bytes of the whole model's parameters, gradients and optimizer's state."""
        return self.model.parameters * sum(self.states)


@dataclass(frozen=True, slots=True)
class Layout:
    """The division of a training run among devices."""

    data: int = 1
    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    micro_batches: int = 1
    """The number of micro-batches into which the examples of a data rank are divided."""
    stages: int = 1
    """The number of stages on each pipeline rank."""
    strategy: str = "ddp"
    recomputation: str = "none"
    sequence_parallel: bool = False
    offload: str = "none"

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.data * self.tensor * self.context * self.pipeline


@dataclass(frozen=True, slots=True)
class Time:
    """The parts of a step's time in seconds, for the rank that takes longest.

    Their sum is the step's time.
    """

    work: float
    recomputed: float
    tensor: float
    context: float
    bubble: float
    pipeline: float
    """The part of the transfers between stages that does not overlap with passes."""
    data: float
    """The part of the data ranks' traffic that does not overlap with passes."""
    offload: float

    @property
    def step(self) -> float:
        """The step's time in seconds."""
        return (
            self.work
            + self.recomputed
            + self.tensor
            + self.context
            + self.bubble
            + self.pipeline
            + self.data
            + self.offload
        )

    @property
    def communication(self) -> float:
        """The seconds of all transfers between ranks, without the part that overlaps with passes."""
        return self.tensor + self.context + self.pipeline + self.data


def layers_of_rank(model: Model, layout: Layout) -> int:
    """Return the number of layers of the pipeline rank that has the most."""
    return layout.stages * -(-model.layers // (layout.pipeline * layout.stages))


def least_states(training: Training, offload: str) -> float:
    """Return a lower bound of the bytes that all devices together hold, for any layout with this offload."""
    weight, gradient, state = training.states
    return training.model.parameters * (weight + gradient + (0 if offload == "optimizer" else state))


def memory(training: Training, layout: Layout) -> float:
    """Return the memory in bytes of the rank that needs the most, without RESERVE, which stays free."""
    model, at = training.model, layout
    ends = model.embedding_parameters + model.positions * model.width
    if at.pipeline == 1 and not model.tied:
        ends += model.embedding_parameters
    layers = layers_of_rank(model, at)
    parameters = (layers * model.layer_parameters + ends) / at.tensor
    kept, extra, logits = _activations(training, at)
    held = layers * kept * _in_flight(at) + extra
    last = layers * kept + extra + logits
    if at.pipeline == 1:
        held += logits
    activations = max(held, last)
    if at.offload == "activations":
        activations = extra + logits + 2 * kept
    return _states(training, at, parameters) + activations


def _in_flight(at: Layout) -> float:
    """Return the number of micro-batches whose activations the first rank holds at once (Narayanan et al.,
    2021, section 2.2).
    """
    if at.pipeline == 1:
        return 1.0
    more = 1 + (at.pipeline - 1) / (at.pipeline * at.stages) if at.stages > 1 else 1.0
    return min(at.micro_batches, at.pipeline * more)


def _activations(training: Training, at: Layout) -> tuple[float, float, float]:
    """Return the bytes of a micro-batch's activations: those that each layer keeps, those that one layer
    needs in addition while it is recomputed, and the logits.
    """
    return _activation_bytes(
        training,
        *(at.data * at.micro_batches, at.context, at.tensor, at.sequence_parallel, at.recomputation),
    )


@lru_cache(maxsize=4096)
def _activation_bytes(
    training: Training, parts: int, context: int, tensor: int, divided: bool, recomputation: str
) -> tuple[float, float, float]:
    model = training.model
    tokens = training.batch / parts * model.sequence / context
    layer = tokens * training.number * model.layer_activations(tensor, sequence_parallel=divided)
    logits = tokens * model.vocabulary / tensor * (training.number + 4)
    if recomputation == "full":
        return tokens * training.number * model.width / (tensor if divided else 1), layer, logits
    return layer, 0.0, logits


def _states(training: Training, at: Layout, parameters: float) -> float:
    weight, gradient, state = training.states
    ranks = at.data * at.context
    if at.offload == "optimizer":
        state = 0
    match at.strategy:
        case "ddp":
            return parameters * (weight + gradient + state)
        case "zero1":
            return parameters * (weight + gradient + state / ranks)
        case "zero2":  # with several micro-batches, each rank adds up whole gradients
            gradients = gradient / ranks if at.micro_batches == 1 else gradient
            return parameters * (weight + gradients + state / ranks)
        case "shard_grad_op":  # each rank gathers all weights, and keeps them during the step
            return parameters * (weight + (gradient + state) / ranks)
    gathered = 2 * training.model.layer_parameters / at.tensor * weight
    return parameters * (weight + gradient + state) / ranks + gathered


def time(training: Training, cluster: Cluster, layout: Layout) -> Time:
    """Return the parts of a step's time."""
    at, model = layout, training.model
    work, recomputed, tensor, context = _passes(
        training,
        cluster,
        *(at.data * at.micro_batches, at.tensor, at.context, at.recomputation == "full"),
    )
    head = 3 * model.head_operations * _tokens(training, at) / at.tensor / cluster.speed / cluster.efficiency
    work += cluster.layer_overhead
    layers = layers_of_rank(model, at)
    # The stage with the head gets fewer layers. So the slowest rank takes the longer of two times: the mean
    # time of all ranks, and the time for the most layers of any rank.
    mine = max(layers * work, (model.layers * work + head) / at.pipeline)
    one = mine + layers * (recomputed + tensor + context)
    times, idle = at.micro_batches, (at.pipeline - 1) / at.stages
    return Time(
        work=times * mine,
        recomputed=times * layers * recomputed,
        tensor=times * layers * tensor,
        context=times * layers * context,
        bubble=idle * one,
        pipeline=_pipeline(training, cluster, at, one),
        data=_data(training, cluster, at, mine + layers * recomputed),
        offload=_offload(training, cluster, at),
    )


def _tokens(training: Training, at: Layout) -> float:
    """Return the number of tokens of a rank's micro-batch."""
    return training.batch / (at.data * at.micro_batches) * training.model.sequence / at.context


@lru_cache(maxsize=4096)
def _passes(
    training: Training, cluster: Cluster, parts: int, tensor: int, context: int, again: bool
) -> tuple[float, float, float, float]:
    """Return the seconds of a layer for a micro-batch: passes, recomputation, traffic of tensor ranks, and
    traffic of context ranks.

    `parts` is the number of micro-batches of all data ranks; with `again`, the forward pass is repeated.
    """
    model = training.model
    examples = training.batch / parts
    tokens = examples * model.sequence / context
    forward = model.layer_operations * tokens / tensor / cluster.speed / cluster.efficiency
    # Each pass, and a repeated forward pass, has two all-reduces (Shoeybi et al., 2019, section 3).
    one = all_reduce(tensor, tokens * model.width * training.number, *cluster.link(tensor, 1))
    # Keys and values are gathered in each pass, and their gradients are reduced and scattered.
    pairs = 2 * examples * model.sequence * model.key_value_width / tensor * training.number
    gathered = gathering(context, pairs, *cluster.link(context, tensor))
    return (
        3 * forward,
        forward if again else 0.0,
        one * (6 if again else 4),
        gathered * (4 if again else 3),
    )


def _pipeline(training: Training, cluster: Cluster, at: Layout, passes: float) -> float:
    """Return the seconds of transfers between stages, without the part that overlaps with passes.

    `passes` is the time of the passes of a micro-batch. With one stage on each rank, all ranks wait for
    transfers while the pipeline fills and empties. In between, transfers overlap with passes: if the
    transfers of a micro-batch take longer than its passes, ranks wait for the difference. A rank in the
    middle sends in both directions. With several stages on each rank, ranks wait for every transfer
    (Narayanan et al., 2021, section 2.2).
    """
    if at.pipeline == 1:
        return 0.0
    latency, bandwidth = cluster.link(2, at.tensor * at.context * at.data)
    # Each tensor rank sends its part, and the parts are gathered in the machine (Narayanan et al., 2021,
    # section 4.1).
    sent = _tokens(training, at) * training.model.width * training.number / at.tensor
    one = latency + sent / bandwidth
    if at.stages > 1:
        return 2 * at.micro_batches * at.stages * one
    directions = 1 if at.pipeline == 2 else 2
    return 2 * (at.pipeline - 1) * one + at.micro_batches * max(0.0, directions * one - passes)


def _data(training: Training, cluster: Cluster, at: Layout, passes: float) -> float:
    """Return the seconds of data ranks' traffic, without the part that overlaps with passes.

    `passes` is the time of the passes of a micro-batch.
    """
    ranks = at.data * at.context
    if ranks == 1:
        return 0.0
    model = training.model
    weight, gradient, _ = training.states
    ends = model.embedding_parameters * (1 if model.tied or at.pipeline > 1 else 2)
    parameters = (layers_of_rank(model, at) * model.layer_parameters + ends) / at.tensor
    link = cluster.link(ranks, at.tensor)
    reduced = gathering(ranks, parameters * gradient, *link)
    gathered = gathering(ranks, parameters * weight, *link)
    backward = passes * 2 / 3
    match at.strategy:
        case "ddp":
            return max(0.0, 2 * reduced - OVERLAP * backward)
        case "zero1" | "zero2":  # parameters are gathered after the step, when no passes run
            return max(0.0, reduced - OVERLAP * backward) + gathered
        case "shard_grad_op":
            sent = gathered + reduced
            return max(0.0, at.micro_batches * (sent - OVERLAP * passes))
    return max(0.0, at.micro_batches * (2 * gathered + reduced - OVERLAP * passes))


def _offload(training: Training, cluster: Cluster, at: Layout) -> float:
    """Return the seconds of copies to the host and back."""
    if at.offload == "none":
        return 0.0
    model = training.model
    layers = layers_of_rank(model, at)
    if at.offload == "optimizer":
        ends = model.embedding_parameters * (1 if model.tied or at.pipeline > 1 else 2)
        shared = 1 if at.strategy == "ddp" else at.data * at.context
        parameters = (layers * model.layer_parameters + ends) / at.tensor / shared
        copied = parameters * training.states[2]
    else:
        copied = layers * _activations(training, at)[0] * at.micro_batches
    return 2 * copied / cluster.host_bandwidth
