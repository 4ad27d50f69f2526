"""Tries numbers of devices and layouts, and decides which of them to use."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from training_service.client.planning import costs
from training_service.client.planning.cluster import Cluster
from training_service.client.planning.costs import Layout, Time, Training

LEAST_GAIN = 0.5
"""An added device must add at least this share of the mean speed of the devices before it; see `decide`."""

MOST_CONTEXT_RANKS = 64


@dataclass(frozen=True)
class Limits:
    """The strategies, recomputations and offloads that the search may choose."""

    strategies: tuple[str, ...] = costs.STRATEGIES
    recomputations: tuple[str, ...] = costs.RECOMPUTATIONS
    offloads: tuple[str, ...] = costs.OFFLOADS
    sequence_parallel: bool = True
    context_parallel: bool = False
    """Whether a layout may divide sequences among context ranks. No built-in algorithm does this."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is unknown. The message names the allowed values."""
        for name in ("strategies", "recomputations", "offloads"):
            allowed = getattr(costs, name.upper())
            for value in getattr(self, name):
                if value not in allowed:
                    raise ValueError(f"'{value}' is unknown; allowed are {', '.join(allowed)}")


@dataclass(frozen=True)
class Choice:
    """A layout and its costs."""

    layout: Layout
    memory: float
    """The bytes of the device that needs the most."""
    time: Time

    @property
    def step(self) -> float:
        """Seconds of a step."""
        return self.time.step

    @property
    def device_seconds(self) -> float:
        """The price of a step: its seconds times its devices."""
        return self.step * self.layout.devices


@dataclass(frozen=True)
class Decision:
    """The fastest layout for each number of devices that was tried, and the layout to use."""

    best: Choice
    at_best: tuple[Choice, ...]
    """The layouts of different shapes on the chosen number of devices, the fastest first."""
    by_devices: dict[int, Choice]
    """The fastest fitting layout by number of devices. Numbers without a fitting layout are left out."""


@dataclass(frozen=True)
class Nothing:
    """The result of the search if no layout fits."""

    smallest: Choice | None
    """The layout that needs the least memory; None if no layout is valid."""


def decide(
    training: Training,
    cluster: Cluster,
    *,
    limits: Limits | None = None,
    least_gain: float = LEAST_GAIN,
    all_devices: bool = False,
) -> Decision | Nothing:
    """Find the layout to use.

    The search starts with the smallest number of devices on which the training fits. It then goes through
    the larger numbers, and changes from k to n devices if n are faster, and the speed-up is at least
    1 + least_gain (n/k - 1). So each added device brings at least the share `least_gain` of the mean speed of
    the k devices. Layouts with offload are tried only if no layout without offload fits on any number of
    devices. With `all_devices`, all devices are used.

    Returns `Nothing` if no layout fits. Raises ValueError if `least_gain` is not from 0 to 1.
    """
    if not 0 <= least_gain <= 1:
        raise ValueError(f"least_gain is {least_gain:g}; it must be from 0 to 1")
    limits = limits or Limits()
    counts = [cluster.devices] if all_devices else numbers_of_devices(cluster)
    # Copies to the host are slow and need the host's memory: use them only if nothing fits without them.
    plain = replace(limits, offloads=tuple(each for each in limits.offloads if each == "none"))
    fitting = _fitting_choices(training, cluster, counts, plain)
    fitting = fitting or _fitting_choices(training, cluster, counts, limits)
    if not fitting:
        return Nothing(smallest(training, cluster, counts, limits))
    used, *more = fitting
    for count in more:
        speed_up = fitting[used][0].step / fitting[count][0].step
        if speed_up > 1 and speed_up >= 1 + least_gain * (count / used - 1):
            used = count
    by_devices = {count: each[0] for count, each in fitting.items()}
    return Decision(by_devices[used], tuple(fitting[used]), by_devices)


def _fitting_choices(
    training: Training, cluster: Cluster, counts: list[int], limits: Limits
) -> dict[int, list[Choice]]:
    found = {count: choices(training, cluster, count, limits) for count in counts}
    return {count: each for count, each in found.items() if each}


def numbers_of_devices(cluster: Cluster) -> list[int]:
    """Return the numbers of devices to try: all numbers within a machine, then whole machines.

    All numbers of machines up to 16 are tried. Larger numbers are tried if they divide the number of
    machines.
    """
    machines = [n for n in range(2, cluster.machines + 1) if n <= 16 or not cluster.machines % n]
    return [*range(1, cluster.per_machine + 1), *(n * cluster.per_machine for n in machines)]


def choices(training: Training, cluster: Cluster, devices: int, limits: Limits) -> list[Choice]:
    """Return the fastest fitting layout of each shape on this number of devices, the fastest first.

    Each kind of offload is tried only if no layout fits with the kinds before it.
    """
    best: dict[tuple[int, ...], Choice] = {}
    room = cluster.memory * (1 - costs.RESERVE)
    for offload in limits.offloads:
        if costs.least_states(training, offload) > room * devices:
            continue
        for plain in _shapes(training, cluster, devices, limits):
            shape = (plain.data, plain.tensor, plain.context, plain.pipeline)
            for layout, memory in _fitting(training, replace(plain, offload=offload), limits, room):
                choice = Choice(layout, memory, costs.time(training, cluster, layout))
                if shape not in best or choice.step < best[shape].step:
                    best[shape] = choice
        if best:
            break
    return sorted(best.values(), key=_cost)


def smallest(training: Training, cluster: Cluster, counts: list[int], limits: Limits) -> Choice | None:
    """Return the layout that needs the least memory; None if no layout is valid.

    It uses the largest number of devices in `counts` for which there is a valid layout.
    """
    for devices in reversed(counts):
        least: tuple[float, Layout] | None = None
        for plain in _shapes(training, cluster, devices, limits):
            for offload in limits.offloads:
                everything = replace(plain, offload=offload)
                for layout, memory in _fitting(training, everything, limits, float("inf"), every=True):
                    if least is None or memory < least[0]:
                        least = memory, layout
        if least is not None:
            return Choice(least[1], least[0], costs.time(training, cluster, least[1]))
    return None


def _cost(choice: Choice) -> tuple[float, ...]:
    at = choice.layout
    return (choice.step, costs.STRATEGIES.index(at.strategy), at.pipeline, at.tensor, at.context)


def _fitting(
    training: Training, plain: Layout, limits: Limits, room: float, *, every: bool = False
) -> Iterator[tuple[Layout, float]]:
    """Yield the layouts with the shape of `plain` that fit into `room` bytes, each with its memory.

    The layouts differ in recomputation and strategy.

    All strategies except ddp divide states. Once one of these strategies fits, the strategies after it are
    left out, because they send more bytes to save memory. With `every`, no strategy is left out.
    """
    alone = plain.data * plain.context == 1
    shape = (*(plain.data, plain.tensor, plain.context, plain.pipeline), plain.micro_batches, plain.stages)
    strategies = ("ddp",) if alone and "ddp" in limits.strategies else limits.strategies
    for recomputation in limits.recomputations:
        first_only = False
        for strategy in strategies:
            if first_only and not every:
                break
            layout = Layout(*shape, strategy, recomputation, plain.sequence_parallel, plain.offload)
            memory = costs.memory(training, layout)
            if memory <= room:
                yield layout, memory
                first_only = strategy != "ddp"


def _shapes(training: Training, cluster: Cluster, devices: int, limits: Limits) -> Iterator[Layout]:
    """Yield each valid shape with each number of micro-batches and of stages to try."""
    model = training.model
    for tensor in _divisors(devices):
        # Tensor ranks exchange activations in each layer, so they share a machine (Narayanan et al., 2021,
        # takeaway 1).
        if tensor > cluster.per_machine or model.heads % tensor or (model.key_value_heads or tensor) % tensor:
            continue
        for pipeline in _divisors(devices // tensor):
            if pipeline > model.layers:
                break
            for context in _divisors(devices // (tensor * pipeline)):
                if context > (MOST_CONTEXT_RANKS if limits.context_parallel else 1):
                    break
                data = devices // (tensor * pipeline * context)
                if training.batch % data or model.sequence % (context * tensor):
                    continue
                divided = limits.sequence_parallel and tensor > 1
                shape = Layout(data, tensor, context, pipeline, sequence_parallel=divided)
                for micro_batches in _parts(training.batch // data):
                    if micro_batches < pipeline:
                        continue
                    for stages in _stages(model.layers, pipeline, micro_batches):
                        yield replace(shape, micro_batches=micro_batches, stages=stages)


def _stages(layers: int, pipeline: int, micro_batches: int) -> list[int]:
    """Return the numbers of stages per rank to try.

    Several stages need a number of micro-batches that is a multiple of the number of pipeline ranks. Each
    stage needs a layer, except the first and the last one: these may have only the embedding and the head, as
    in the training of Llama 3 (128 stages for 126 layers; Dubey et al., 2024, section 3.3.2).
    """
    if pipeline == 1 or micro_batches % pipeline:
        return [1]
    return [stages for stages in (1, 2, 4, 8) if pipeline * stages <= layers + 2]


def _parts(examples: int) -> list[int]:
    """Return the numbers of micro-batches to try: the divisors of `examples`; if there are more than eight,
    the three lowest and the five highest.
    """
    numbers = _divisors(examples)
    return numbers if len(numbers) <= 8 else sorted({*numbers[:3], *numbers[-5:]})


@cache
def _divisors(number: int) -> list[int]:
    low = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*low, *(number // n for n in low)})
