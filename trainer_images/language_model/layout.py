"""What a training of the language model may be told, and which combinations can be.

Nothing here needs PyTorch, so that a door or a planner can use the same rules as the training, which
checks them before its group is joined.
"""

from dataclasses import dataclass
from typing import Self

from trainer_kit import environment
from trainer_kit.errors import ParameterError

from language_model.all_reduce.topology import Topology
from language_model.choices import (
    Compression,
    Offload,
    Precision,
    RateScaling,
    Schedule,
    Split,
    Strategy,
)
from language_model.parameter_server.synchrony import COMPENSATION, Rule, Synchrony, rule_of

VOCABULARY = 256
"""A byte is a token."""
LARGEST_SEED = 2**32 - 1
LARGEST_CONTEXT = 4095


@dataclass(frozen=True)
class Layout:
    """One training: the model, the batch, and how both are shared out to WORLD_SIZE processes.

    Each field is set by the environment variable of its name in upper case. Raises ParameterError,
    naming the numbers and the rule, for what cannot be.
    """

    world_size: int = 1
    strategy: Strategy = Strategy.DDP
    pipeline: int = 1
    """Ranks that share out the layers."""
    tensor: int = 1
    """Ranks that share out each layer."""
    schedule: Schedule = Schedule.ONE_FORWARD_ONE_BACKWARD
    stages_per_rank: int = 2
    """Of an interleaved pipeline; the others have one."""
    split: Split = Split.EVEN
    sequence_parallel: bool = False
    """Tensor ranks share out the sequence between the matrices too."""
    loss_parallel: bool = False
    """Tensor ranks share out the vocabulary of the loss."""
    batch_size: int = 16
    """Examples that the whole group takes in a step."""
    micro_batches: int = 1
    """Parts in which a data rank takes its share: accumulation, or what fills a pipeline."""
    checkpointing: str = "none"
    """Activations to compute anew: none, full, selective, or every:N for each N-th layer."""
    precision: Precision = Precision.FP32
    offload: Offload = Offload.NONE
    gradient_compression: Compression = Compression.NONE
    bucket_mb: int = 25
    """Of gradients that are averaged at once."""
    all_reduce: Topology = Topology.LIBRARY
    """How DistributedDataParallel sums them."""
    node_size: int = 1
    """Processes near each other, for ALL_REDUCE=hierarchical; LOCAL_WORLD_SIZE where it is not set."""
    synchrony: Synchrony = Synchrony.SYNCHRONOUS
    """What a parameter server waits for."""
    backup_workers: int = 0
    """Whose gradients may come too late for a step."""
    softsync: int = 1
    """Updates that the gradients of all workers make."""
    compensation: float = COMPENSATION
    """λ of SYNCHRONY=delay_compensated."""
    layers: int = 4
    heads: int = 4
    width: int = 64
    context: int = 64
    """Tokens of an example."""
    steps: int = 200
    lr: float = 0.003
    warm_up: int = 10
    """Steps in which the learning rate grows: to LR, or where it is scaled, from LR."""
    lr_scaling: RateScaling = RateScaling.NONE
    reference_batch_size: int = 0
    """The batch size that LR was found for; 0: BATCH_SIZE."""
    grow_at: tuple[int, ...] = ()
    """Steps from which on the batch is GROWTH times as large."""
    growth: int = 2
    largest_batch_size: int = 0
    """Where the batch can grow no further, the learning rate falls by GROWTH instead; 0: it always can."""
    seed: int = 1

    def __post_init__(self) -> None:
        for rule in (
            _mesh_fits,
            _model_divides,
            _pipeline_fits,
            _batch_divides,
            _memory_fits,
            _data_parallel_fits,
            _batch_growth_fits,
        ):
            rule(self)

    @classmethod
    def from_environment(cls) -> Self:
        """Reads the parameters and WORLD_SIZE; raises ParameterError naming the first that is wrong."""
        integer, choice, flag = environment.integer, environment.choice, environment.flag
        return cls(
            world_size=integer("WORLD_SIZE", cls.world_size, at_least=1, at_most=100_000),
            strategy=choice("STRATEGY", Strategy, cls.strategy),
            pipeline=integer("PIPELINE", cls.pipeline, at_least=1, at_most=10_000),
            tensor=integer("TENSOR", cls.tensor, at_least=1, at_most=VOCABULARY),
            schedule=choice("SCHEDULE", Schedule, cls.schedule),
            stages_per_rank=integer("STAGES_PER_RANK", cls.stages_per_rank, at_least=2, at_most=100),
            split=choice("SPLIT", Split, cls.split),
            sequence_parallel=flag("SEQUENCE_PARALLEL", cls.sequence_parallel),
            loss_parallel=flag("LOSS_PARALLEL", cls.loss_parallel),
            batch_size=integer("BATCH_SIZE", cls.batch_size, at_least=1, at_most=1_000_000),
            micro_batches=integer("MICRO_BATCHES", cls.micro_batches, at_least=1, at_most=100_000),
            checkpointing=environment.text("CHECKPOINTING", cls.checkpointing),
            precision=choice("PRECISION", Precision, cls.precision),
            offload=choice("OFFLOAD", Offload, cls.offload),
            gradient_compression=choice("GRADIENT_COMPRESSION", Compression, cls.gradient_compression),
            bucket_mb=integer("BUCKET_MB", cls.bucket_mb, at_least=1, at_most=10_000),
            all_reduce=choice("ALL_REDUCE", Topology, cls.all_reduce),
            node_size=integer(
                "NODE_SIZE",
                integer("LOCAL_WORLD_SIZE", cls.node_size, at_least=1, at_most=100_000),
                at_least=1,
                at_most=100_000,
            ),
            synchrony=choice("SYNCHRONY", Synchrony, cls.synchrony),
            backup_workers=integer("BACKUP_WORKERS", cls.backup_workers, at_least=0, at_most=100_000),
            softsync=integer("SOFTSYNC", cls.softsync, at_least=1, at_most=100_000),
            compensation=environment.positive_number("COMPENSATION", cls.compensation),
            layers=integer("LAYERS", cls.layers, at_least=1, at_most=10_000),
            heads=integer("HEADS", cls.heads, at_least=1, at_most=10_000),
            width=integer("WIDTH", cls.width, at_least=1, at_most=1_000_000),
            context=integer("CONTEXT", cls.context, at_least=1, at_most=LARGEST_CONTEXT),
            steps=integer("STEPS", cls.steps, at_least=1, at_most=10**9),
            lr=environment.positive_number("LR", cls.lr),
            warm_up=integer("WARM_UP", cls.warm_up, at_least=0, at_most=10**9),
            lr_scaling=choice("LR_SCALING", RateScaling, cls.lr_scaling),
            reference_batch_size=integer("REFERENCE_BATCH_SIZE", 0, at_least=1, at_most=1_000_000),
            grow_at=environment.integers("GROW_AT", at_least=2, at_most=10**9),
            growth=integer("GROWTH", cls.growth, at_least=2, at_most=1000),
            largest_batch_size=integer("LARGEST_BATCH_SIZE", 0, at_least=1, at_most=10**9),
            seed=integer("SEED", cls.seed, at_least=0, at_most=LARGEST_SEED),
        )

    @property
    def data(self) -> int:
        """Ranks that share out the batch."""
        return self.world_size // (self.pipeline * self.tensor)

    @property
    def rule(self) -> Rule:
        """By which a parameter server changes the weights."""
        return rule_of(
            self.synchrony,
            self.world_size - 1,
            backup_workers=self.backup_workers,
            softsync=self.softsync,
            compensation=self.compensation,
        )

    @property
    def batch_shares(self) -> int:
        """Parts of the batch that different ranks take."""
        return self.rule.gradients if self.is_served else self.data

    @property
    def is_served(self) -> bool:
        """Whether rank 0 is a parameter server."""
        return self.strategy is Strategy.PARAMETER_SERVER

    @property
    def stages(self) -> int:
        """Of the whole pipeline; 1 where there is none."""
        return self.pipeline * (self.stages_per_rank if self.is_interleaved else 1)

    @property
    def is_interleaved(self) -> bool:
        """Whether a rank has several stages."""
        return self.pipeline > 1 and self.schedule is Schedule.INTERLEAVED

    @property
    def is_sharded(self) -> bool:
        """Whether parameters are shared out by fully_shard."""
        return self.strategy in (Strategy.ZERO2, Strategy.ZERO3)

    @property
    def recomputed_every(self) -> int:
        """Each how-many-th layer is computed anew in the backward pass; 0: none is, at least not whole."""
        kind, _, number = self.checkpointing.partition(":")
        return {"none": 0, "selective": 0, "full": 1}.get(kind) or (int(number) if number else 0)

    @property
    def layers_of_stages(self) -> tuple[range, ...]:
        """The layers of each stage, in order."""
        return split(self.layers, self.stages, _head_cost(self) if self.split is Split.COST else 0.0)


def split(layers: int, stages: int, head_cost: float) -> tuple[range, ...]:
    """Layers shared out to stages in rows, so that the dearest stage is as cheap as can be.

    A layer costs 1, and the head, on the last stage, `head_cost`. Of equally good ways, the evenest.
    """
    last = min(
        range(1, layers - stages + 2) if stages > 1 else [layers],
        key=lambda mine: (max(mine + head_cost, -(-(layers - mine) // max(1, stages - 1))), -mine),
    )
    others = stages - 1
    sizes = [(layers - last) // others + (i < (layers - last) % others) for i in range(others)] + [last]
    starts = [sum(sizes[:index]) for index in range(stages)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))


def _head_cost(layout: Layout) -> float:
    """Multiplications of the head for a token, as a share of a layer's.

    A layer has 12 width² weights, and attention multiplies each query and each value of the context.
    """
    return VOCABULARY * layout.width / (12 * layout.width**2 + 2 * layout.context * layout.width)


def _mesh_fits(layout: Layout) -> None:
    ranks = layout.pipeline * layout.tensor
    if layout.world_size % ranks:
        raise ParameterError(
            f"PIPELINE {layout.pipeline} x TENSOR {layout.tensor} = {ranks} ranks do not divide "
            f"WORLD_SIZE {layout.world_size}: the data ranks are what is left, and must be a whole number"
        )


def _model_divides(layout: Layout) -> None:
    _must_divide("WIDTH", layout.width, "HEADS", layout.heads)
    for name, number in (("HEADS", layout.heads), ("CONTEXT", layout.context), ("WIDTH", layout.width)):
        _must_divide(name, number, "TENSOR", layout.tensor)
    if VOCABULARY % layout.tensor:
        raise ParameterError(
            f"the vocabulary of {VOCABULARY} cannot be shared out to TENSOR {layout.tensor} ranks alike"
        )
    for name, wanted in (
        ("SEQUENCE_PARALLEL", layout.sequence_parallel),
        ("LOSS_PARALLEL", layout.loss_parallel),
    ):
        if wanted and layout.tensor == 1:
            raise ParameterError(f"{name} shares out work among tensor ranks, but TENSOR is 1")


def _pipeline_fits(layout: Layout) -> None:
    stages = f"{layout.stages} stages" + (
        f" (PIPELINE {layout.pipeline} x STAGES_PER_RANK {layout.stages_per_rank})"
        if layout.is_interleaved
        else " (PIPELINE)"
    )
    if layout.layers < layout.stages:
        raise ParameterError(f"LAYERS {layout.layers} are too few for {stages}: each needs one")
    if layout.split is Split.EVEN and layout.layers % layout.stages:
        raise ParameterError(
            f"LAYERS {layout.layers} cannot be shared out to {stages} alike: choose a multiple, or SPLIT=cost"
        )
    if layout.pipeline > 1 and layout.loss_parallel:
        raise ParameterError(
            f"LOSS_PARALLEL cannot go with PIPELINE {layout.pipeline}: PyTorch's pipeline takes no "
            "scores that tensor ranks have cut"
        )
    if layout.is_interleaved and layout.micro_batches % layout.pipeline:
        raise ParameterError(
            f"MICRO_BATCHES {layout.micro_batches} is no multiple of PIPELINE {layout.pipeline}, "
            "as SCHEDULE=interleaved needs"
        )
    if layout.pipeline > 1 and layout.micro_batches < layout.pipeline:
        raise ParameterError(
            f"MICRO_BATCHES {layout.micro_batches} are fewer than PIPELINE {layout.pipeline}: "
            "some stages would never have work at the same time"
        )


def _batch_divides(layout: Layout) -> None:
    parts = layout.batch_shares * layout.micro_batches
    if layout.batch_size % parts:
        takers = "gradients of an update" if layout.is_served else "data ranks"
        raise ParameterError(
            f"BATCH_SIZE {layout.batch_size} cannot be shared out to {layout.batch_shares} {takers} x "
            f"MICRO_BATCHES {layout.micro_batches} = {parts} parts alike"
        )


def _memory_fits(layout: Layout) -> None:
    kind, _, number = layout.checkpointing.partition(":")
    plain = layout.checkpointing in ("none", "full", "selective")
    if not plain and not (kind == "every" and number.isdecimal() and 1 <= int(number) <= layout.layers):
        raise ParameterError(
            "CHECKPOINTING must be none, full, selective, or every:N with N from 1 to LAYERS "
            f"{layout.layers}, but is {layout.checkpointing!r}"
        )
    if layout.offload is Offload.PARAMETERS and not layout.is_sharded:
        raise ParameterError(
            f"OFFLOAD=parameters is done by STRATEGY=zero2 or zero3, but STRATEGY is {layout.strategy}"
        )
    if layout.offload is Offload.PARAMETERS and layout.data == 1:
        raise ParameterError(
            "OFFLOAD=parameters moves what is shared out among data ranks, but there is 1: WORLD_SIZE "
            f"{layout.world_size} / (PIPELINE {layout.pipeline} x TENSOR {layout.tensor})"
        )
    if layout.offload is Offload.OPTIMIZER and (layout.is_sharded or layout.tensor > 1):
        raise ParameterError(
            "OFFLOAD=optimizer is for whole parameters, STRATEGY=ddp or zero1 with TENSOR 1, but STRATEGY "
            f"is {layout.strategy} and TENSOR {layout.tensor}; OFFLOAD=parameters moves the optimizer too"
        )


def _data_parallel_fits(layout: Layout) -> None:
    if layout.strategy is Strategy.ZERO1 and layout.tensor > 1:
        raise ParameterError(
            f"STRATEGY=zero1 shares out whole parameters, but TENSOR {layout.tensor} has cut them: "
            "use zero2 or zero3"
        )
    if layout.gradient_compression is not Compression.NONE and not uses_ddp(layout):
        raise ParameterError(
            f"GRADIENT_COMPRESSION={layout.gradient_compression} is done by DistributedDataParallel: it "
            "needs STRATEGY=ddp or zero1, PIPELINE 1, TENSOR 1 and several data ranks, but they are "
            f"{layout.strategy}, {layout.pipeline}, {layout.tensor} and {layout.data}"
        )
    if layout.all_reduce is not Topology.LIBRARY and (
        layout.gradient_compression is not Compression.NONE or not uses_ddp(layout)
    ):
        raise ParameterError(
            f"ALL_REDUCE={layout.all_reduce} is a hook of DistributedDataParallel: it needs STRATEGY=ddp or "
            f"zero1, PIPELINE 1, TENSOR 1, several data ranks and no GRADIENT_COMPRESSION, but they are "
            f"{layout.strategy}, {layout.pipeline}, {layout.tensor}, {layout.data} and "
            f"{layout.gradient_compression}"
        )
    if layout.is_served and layout.pipeline * layout.tensor > 1:
        raise ParameterError(
            "STRATEGY=parameter_server needs whole models, PIPELINE 1 and TENSOR 1, but they are "
            f"{layout.pipeline} and {layout.tensor}"
        )
    if layout.synchrony is not Synchrony.SYNCHRONOUS and not layout.is_served:
        raise ParameterError(
            f"SYNCHRONY={layout.synchrony} is a parameter server's, but STRATEGY is {layout.strategy}"
        )
    if layout.precision is Precision.FP16 and (
        layout.strategy is not Strategy.DDP or layout.pipeline * layout.tensor > 1
    ):
        raise ParameterError(
            "PRECISION=fp16 needs a scaler that sees all gradients: STRATEGY=ddp, PIPELINE 1, TENSOR 1, but "
            f"they are {layout.strategy}, {layout.pipeline} and {layout.tensor}; bf16 needs none"
        )


def _batch_growth_fits(layout: Layout) -> None:
    is_scaled = layout.lr_scaling is not RateScaling.NONE
    if is_scaled != bool(layout.reference_batch_size):
        raise ParameterError(
            "LR_SCALING scales LR from REFERENCE_BATCH_SIZE to BATCH_SIZE, so it needs both or none of them, "
            f"but they are {layout.lr_scaling} and {layout.reference_batch_size or 'not set'}"
        )
    if list(layout.grow_at) != sorted(set(layout.grow_at)):
        raise ParameterError(f"GROW_AT must be growing numbers of steps, but is {layout.grow_at}")
    if 0 < layout.largest_batch_size < layout.batch_size:
        raise ParameterError(
            f"LARGEST_BATCH_SIZE {layout.largest_batch_size} is below BATCH_SIZE {layout.batch_size}"
        )


def uses_ddp(layout: Layout) -> bool:
    """Whether DistributedDataParallel averages the gradients.

    It takes neither parameters that tensor ranks have cut nor a pipeline's passes: there they are
    averaged after the last micro-batch.
    """
    shares_whole = not (layout.is_sharded or layout.is_served)
    return shares_whole and layout.pipeline * layout.tensor == 1 and layout.data > 1


def _must_divide(name: str, number: int, by: str, divisor: int) -> None:
    if number % divisor:
        raise ParameterError(f"{name} {number} is no multiple of {by} {divisor}")
