"""The parameters of the language model, and the rules for their combinations.

This module does not need PyTorch, so admission and the planner (`planning`) can apply the same rules as the
training. The training checks its parameters before it joins its group.
"""

from dataclasses import dataclass
from typing import Self

from trainer_kit import environment
from trainer_kit.averaging import Compression
from trainer_kit.errors import ParameterError

from language_model import memory_rules, strategy_rules
from language_model.all_reduce.topology import Topology
from language_model.choices import (
    Attention,
    Offload,
    Precision,
    RateScaling,
    Schedule,
    Split,
    Stepping,
    Strategy,
)
from language_model.parameter_server.roles import Roles
from language_model.parameter_server.synchrony import COMPENSATION, SPECULATE_AFTER, Rule, Synchrony, rule_of
from language_model.pipeline_rules import pipeline_fits, split

VOCABULARY = 256
"""Each byte is a token."""
LARGEST_SEED = 2**32 - 1
LARGEST_CONTEXT = 4095


@dataclass(frozen=True)
class Layout:
    """One training run: the model, the batch, and their division among WORLD_SIZE processes.

    `from_environment` reads each field from the variable with its name in upper case. An invalid combination
    raises ParameterError, with the numbers and the rule.
    """

    world_size: int = 1
    strategy: Strategy = Strategy.DDP
    pipeline: int = 1
    """The number of ranks among which the layers are divided."""
    tensor: int = 1
    """The number of ranks among which each layer is divided."""
    local_steps: int = 1
    """The number of steps between two averages over all ranks, for STRATEGY=averaging and gossip."""
    slow_momentum: float = 0.0
    """The momentum of the averages of STRATEGY=averaging: 0 (none) or more, and below 1."""
    optimizer: Stepping = Stepping.ADAMW
    schedule: Schedule = Schedule.ONE_FORWARD_ONE_BACKWARD
    stages_per_rank: int = 2
    """The number of stages per rank in an interleaved pipeline. Other pipelines have one."""
    split: Split = Split.EVEN
    sequence_parallel: bool = False
    """Whether norms, dropout and residuals are computed with the sequence divided among the tensor ranks."""
    loss_parallel: bool = False
    """Whether the loss is computed with the vocabulary divided among the tensor ranks."""
    batch_size: int = 16
    """The number of examples per step of the whole group."""
    micro_batches: int = 1
    """The number of parts of a data rank's batch, for gradient accumulation or to fill a pipeline."""
    checkpointing: str = "none"
    """The activations to recompute: none, full, selective, keep_products, or every:N for every N-th layer."""
    attention: Attention = Attention.FUSED
    dropout: float = 0.0
    """The probability with which dropout sets a number to 0."""
    precision: Precision = Precision.FP32
    offload: Offload = Offload.NONE
    gradient_compression: Compression = Compression.NONE
    powersgd_rank: int = 1
    powersgd_start: int = 2
    """The number of steps before PowerSGD starts to compress."""
    bucket_mb: int = 25
    """The size in MiB of a bucket of gradients, which are averaged together."""
    all_reduce: Topology = Topology.LIBRARY
    """The algorithm by which DistributedDataParallel sums gradients."""
    node_size: int = 1
    """The number of processes per node, for ALL_REDUCE=hierarchical and hierarchical_ring. If NODE_SIZE is
    unset, it is LOCAL_WORLD_SIZE."""
    servers: int = 1
    """The number of parameter servers, each of which has a shard of the weights."""
    standby: bool = False
    """Whether each parameter server has a standby."""
    synchrony: Synchrony = Synchrony.SYNCHRONOUS
    """The way in which a parameter server waits for its workers before an update."""
    backup_workers: int = 0
    """The number of workers for which an update does not wait. Their gradients may come too late."""
    speculate_after: int = SPECULATE_AFTER
    """The percentage of shares that must have a gradient before idle workers repeat the other shares, for
    SYNCHRONY=speculative."""
    softsync: int = 1
    """The n of n-softsync: with N workers, an update takes N / n gradients, rounded down."""
    compensation: float = COMPENSATION
    """The factor λ of SYNCHRONY=delay_compensated."""
    layers: int = 4
    heads: int = 4
    width: int = 64
    context: int = 64
    """The number of tokens per example."""
    steps: int = 200
    lr: float = 0.003
    warm_up: int = 10
    """The number of steps in which the learning rate grows from 0 to LR or, with LR_SCALING, from LR to the
    scaled rate."""
    lr_scaling: RateScaling = RateScaling.NONE
    reference_batch_size: int = 0
    """The batch size for which LR was found; 0 means that LR is not scaled."""
    grow_at: tuple[int, ...] = ()
    """The steps at which the batch grows by the factor GROWTH."""
    growth: int = 2
    largest_batch_size: int = 0
    """The largest batch size; 0 means no limit. If the batch would exceed it, the learning rate is divided by
    GROWTH instead."""
    seed: int = 1

    def __post_init__(self) -> None:
        for rule in (
            _mesh_fits,
            _model_divides,
            pipeline_fits,
            _batch_divides,
            memory_rules.check,
            _data_parallel_fits,
            strategy_rules.averaging_fits,
            strategy_rules.parameter_server_fits,
            _batch_growth_fits,
        ):
            rule(self)

    @classmethod
    def from_environment(cls) -> Self:
        """Read the parameters and WORLD_SIZE. Raises ParameterError, which names the first invalid one."""
        integer, choice, flag = environment.integer, environment.choice, environment.flag
        return cls(
            world_size=integer("WORLD_SIZE", cls.world_size, at_least=1, at_most=100_000),
            strategy=choice("STRATEGY", Strategy, cls.strategy),
            pipeline=integer("PIPELINE", cls.pipeline, at_least=1, at_most=10_000),
            tensor=integer("TENSOR", cls.tensor, at_least=1, at_most=VOCABULARY),
            local_steps=integer("LOCAL_STEPS", cls.local_steps, at_least=1, at_most=1_000_000),
            slow_momentum=environment.fraction("SLOW_MOMENTUM", cls.slow_momentum),
            optimizer=choice("OPTIMIZER", Stepping, cls.optimizer),
            schedule=choice("SCHEDULE", Schedule, cls.schedule),
            stages_per_rank=integer("STAGES_PER_RANK", cls.stages_per_rank, at_least=2, at_most=100),
            split=choice("SPLIT", Split, cls.split),
            sequence_parallel=flag("SEQUENCE_PARALLEL", cls.sequence_parallel),
            loss_parallel=flag("LOSS_PARALLEL", cls.loss_parallel),
            batch_size=integer("BATCH_SIZE", cls.batch_size, at_least=1, at_most=1_000_000),
            micro_batches=integer("MICRO_BATCHES", cls.micro_batches, at_least=1, at_most=100_000),
            checkpointing=environment.text("CHECKPOINTING", cls.checkpointing),
            attention=choice("ATTENTION", Attention, cls.attention),
            dropout=environment.fraction("DROPOUT", cls.dropout),
            precision=choice("PRECISION", Precision, cls.precision),
            offload=choice("OFFLOAD", Offload, cls.offload),
            gradient_compression=choice("GRADIENT_COMPRESSION", Compression, cls.gradient_compression),
            powersgd_rank=integer("POWERSGD_RANK", cls.powersgd_rank, at_least=1, at_most=1024),
            powersgd_start=integer("POWERSGD_START", cls.powersgd_start, at_least=2, at_most=1_000_000_000),
            bucket_mb=integer("BUCKET_MB", cls.bucket_mb, at_least=1, at_most=10_000),
            all_reduce=choice("ALL_REDUCE", Topology, cls.all_reduce),
            node_size=integer(
                "NODE_SIZE",
                integer("LOCAL_WORLD_SIZE", cls.node_size, at_least=1, at_most=100_000),
                at_least=1,
                at_most=100_000,
            ),
            servers=integer("SERVERS", cls.servers, at_least=1, at_most=1000),
            standby=flag("STANDBY", cls.standby),
            synchrony=choice("SYNCHRONY", Synchrony, cls.synchrony),
            backup_workers=integer("BACKUP_WORKERS", cls.backup_workers, at_least=0, at_most=100_000),
            speculate_after=integer("SPECULATE_AFTER", cls.speculate_after, at_least=1, at_most=99),
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
        """The number of data ranks, which divide the batch. With parameter servers, see `batch_shares`."""
        return self.world_size // (self.pipeline * self.tensor)

    @property
    def roles(self) -> Roles:
        """The ranks that are servers, standbys and workers."""
        return Roles(self.world_size, self.servers, self.standby)

    @property
    def rule(self) -> Rule:
        """The rule by which a parameter server changes the weights."""
        return rule_of(
            self.synchrony,
            len(self.roles.workers),
            backup_workers=self.backup_workers,
            speculate_after=self.speculate_after,
            softsync=self.softsync,
            compensation=self.compensation,
        )

    @property
    def batch_shares(self) -> int:
        """The number of parts of the batch whose gradients are computed separately."""
        return self.rule.gradients if self.is_served else self.data

    @property
    def is_served(self) -> bool:
        """Whether some ranks are parameter servers."""
        return self.strategy is Strategy.PARAMETER_SERVER

    @property
    def averages_weights(self) -> bool:
        """Whether ranks step by themselves and average their weights."""
        return self.strategy in (Strategy.AVERAGING, Strategy.GOSSIP) and self.data > 1

    @property
    def averages_in_pairs(self) -> bool:
        """Whether ranks additionally average their weights in pairs."""
        return self.strategy is Strategy.GOSSIP and self.data > 1

    @property
    def stages(self) -> int:
        """The number of stages of the pipeline, or 1 without a pipeline."""
        return self.pipeline * (self.stages_per_rank if self.is_interleaved else 1)

    @property
    def is_interleaved(self) -> bool:
        """Whether a rank has several stages."""
        return self.pipeline > 1 and self.schedule is Schedule.INTERLEAVED

    @property
    def is_asynchronous(self) -> bool:
        """Whether each stage of a pipeline steps by itself, with gradients from weights of earlier steps."""
        return self.pipeline > 1 and self.schedule is Schedule.PIPEDREAM

    @property
    def is_sharded(self) -> bool:
        """Whether fully_shard divides the parameters. (With one data rank, it has nothing to divide.)"""
        return self.strategy in (Strategy.SHARD_GRAD_OP, Strategy.ZERO3)

    @property
    def has_flat_buckets(self) -> bool:
        """Whether gradients are reduced in flat buckets, which need several data ranks."""
        return self.strategy in (Strategy.ZERO1, Strategy.ZERO2) and self.data > 1

    @property
    def recomputed_every(self) -> int:
        """The N of CHECKPOINTING=every:N, and 1 for CHECKPOINTING=full; 0 for all other values."""
        kind, _, number = self.checkpointing.partition(":")
        return 1 if kind == "full" else int(number or 0)

    @property
    def is_attention_explicit(self) -> bool:
        """Whether attention computes its scores, softmax and dropout as separate operations."""
        is_recomputed = self.checkpointing == "selective"
        return self.attention is Attention.EXPLICIT or self.dropout > 0 or is_recomputed

    @property
    def is_layer_by_layer(self) -> bool:
        """Whether only one layer at a time is on the device."""
        return self.offload is Offload.LAYERS

    @property
    def layers_of_stages(self) -> tuple[range, ...]:
        """The layers of each stage, in order."""
        return split(self.layers, self.stages, _head_cost(self) if self.split is Split.COST else 0.0)


def _head_cost(layout: Layout) -> float:
    """Return the multiplications of the head per token, relative to the multiplications of a layer.

    A layer multiplies by 12 width² weights. Attention also multiplies by the keys and values of the context.
    """
    return VOCABULARY * layout.width / (12 * layout.width**2 + 2 * layout.context * layout.width)


def _mesh_fits(layout: Layout) -> None:
    ranks = layout.pipeline * layout.tensor
    if layout.world_size % ranks:
        raise ParameterError(
            f"PIPELINE {layout.pipeline} x TENSOR {layout.tensor} = {ranks} ranks do not divide "
            f"WORLD_SIZE {layout.world_size}: the quotient is the number of data ranks, an integer"
        )


def _model_divides(layout: Layout) -> None:
    _must_divide("WIDTH", layout.width, "HEADS", layout.heads)
    for name, number in (("HEADS", layout.heads), ("CONTEXT", layout.context), ("WIDTH", layout.width)):
        _must_divide(name, number, "TENSOR", layout.tensor)
    if VOCABULARY % layout.tensor:
        raise ParameterError(
            f"the vocabulary of {VOCABULARY} cannot be divided evenly among TENSOR {layout.tensor} ranks"
        )
    for name, wanted in (
        ("SEQUENCE_PARALLEL", layout.sequence_parallel),
        ("LOSS_PARALLEL", layout.loss_parallel),
    ):
        if wanted and layout.tensor == 1:
            raise ParameterError(f"{name} needs several tensor ranks, but TENSOR is 1")


def _batch_divides(layout: Layout) -> None:
    parts = layout.batch_shares * layout.micro_batches
    if layout.batch_size % parts:
        takers = "gradients of an update" if layout.is_served else "data ranks"
        raise ParameterError(
            f"BATCH_SIZE {layout.batch_size} cannot be divided evenly among {layout.batch_shares} {takers} x "
            f"MICRO_BATCHES {layout.micro_batches} = {parts} parts"
        )


def _data_parallel_fits(layout: Layout) -> None:
    if layout.strategy is Strategy.ZERO_REDUNDANCY_OPTIMIZER and layout.tensor > 1:
        raise ParameterError(
            f"STRATEGY=zero_redundancy_optimizer needs whole parameters, but TENSOR {layout.tensor} "
            "divides them: use zero1"
        )
    # With one rank, GRADIENT_COMPRESSION and ALL_REDUCE have no effect. They are allowed, because a study of
    # scaling begins with one rank.
    averages_itself = layout.world_size > 1 and not uses_ddp(layout)
    if layout.gradient_compression is not Compression.NONE and averages_itself:
        raise ParameterError(
            f"GRADIENT_COMPRESSION={layout.gradient_compression} is a hook of DistributedDataParallel: it "
            "needs STRATEGY=ddp or zero_redundancy_optimizer, PIPELINE 1, TENSOR 1 and several data ranks, "
            f"but they are {layout.strategy}, {layout.pipeline}, {layout.tensor} and {layout.data}"
        )
    if layout.all_reduce is not Topology.LIBRARY and (
        layout.gradient_compression is not Compression.NONE or averages_itself
    ):
        raise ParameterError(
            f"ALL_REDUCE={layout.all_reduce} is a hook of DistributedDataParallel: it needs STRATEGY=ddp or "
            "zero_redundancy_optimizer, PIPELINE 1, TENSOR 1, several data ranks and no "
            f"GRADIENT_COMPRESSION, but they are {layout.strategy}, {layout.pipeline}, {layout.tensor}, "
            f"{layout.data} and {layout.gradient_compression}"
        )
    if layout.precision is Precision.FP16 and layout.strategy is not Strategy.DDP:
        raise ParameterError(
            "PRECISION=fp16 needs a scaler that sees all gradients of a rank: STRATEGY=ddp, but STRATEGY is "
            f"{layout.strategy}; bf16 needs no scaler"
        )
    if layout.precision is Precision.FP16 and layout.gradient_compression is Compression.POWERSGD:
        raise ParameterError(
            "PRECISION=fp16 cannot be combined with GRADIENT_COMPRESSION=powersgd: PowerSGD adds the error "
            "of a step to the next one, so no gradient would be finite after one that is not; use bf16"
        )


def _batch_growth_fits(layout: Layout) -> None:
    is_scaled = layout.lr_scaling is not RateScaling.NONE
    if is_scaled != bool(layout.reference_batch_size):
        raise ParameterError(
            "LR_SCALING scales LR from REFERENCE_BATCH_SIZE to BATCH_SIZE: set both or none of "
            "LR_SCALING and REFERENCE_BATCH_SIZE, but they are "
            f"{layout.lr_scaling} and {layout.reference_batch_size or 'not set'}"
        )
    if list(layout.grow_at) != sorted(set(layout.grow_at)):
        raise ParameterError(f"GROW_AT must be increasing step numbers, but is {layout.grow_at}")
    if 0 < layout.largest_batch_size < layout.batch_size:
        raise ParameterError(
            f"LARGEST_BATCH_SIZE {layout.largest_batch_size} is below BATCH_SIZE {layout.batch_size}"
        )


def uses_ddp(layout: Layout) -> bool:
    """Return whether DistributedDataParallel averages the gradients.

    It supports neither tensor parallel models nor pipelines: with these, gradients are averaged after the
    last micro-batch. With OFFLOAD=layers, gradients are averaged layer by layer.
    """
    shares_whole = layout.strategy in (Strategy.DDP, Strategy.ZERO_REDUNDANCY_OPTIMIZER)
    shares_whole = shares_whole and not layout.is_layer_by_layer
    return shares_whole and layout.pipeline * layout.tensor == 1 and layout.data > 1


def _must_divide(name: str, number: int, by: str, divisor: int) -> None:
    if number % divisor:
        raise ParameterError(f"{name} {number} is not a multiple of {by} {divisor}")
