"""Explains a decision: the verdict, its reasons, and the alternatives."""

from collections.abc import Iterator
from dataclasses import replace

from training_service.client.planning import all_reduce, costs
from training_service.client.planning.cluster import Cluster
from training_service.client.planning.costs import Layout, Training
from training_service.client.planning.model import Model
from training_service.client.planning.search import Choice, Decision

VOCABULARY = 256
"""The vocabulary of language-model."""
_PARTS = {
    "work": "uneven stages",
    "recomputed": "recomputation",
    "tensor": "traffic of tensor ranks",
    "context": "traffic of context ranks",
    "bubble": "waiting in the pipeline",
    "pipeline": "transfers between stages",
    "data": "traffic of data ranks",
    "offload": "copies to the host",
}
_NAMES = {
    "ddp": "DDP",
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "shard_grad_op": "ZeRO-2 with fully_shard (shard_grad_op)",
    "zero3": "ZeRO-3",
}


def words(layout: Layout) -> str:
    """Describe a layout, such as "data parallel on 4 (ZeRO-1)"."""
    kinds = []
    if layout.pipeline > 1:
        each = f" with {layout.stages} stages each" if layout.stages > 1 else ""
        kinds.append(f"pipeline of {layout.pipeline}{each}")
    if layout.tensor > 1:
        kinds.append(f"tensor parallel on {layout.tensor}")
    if layout.context > 1:
        kinds.append(f"sequences divided among {layout.context}")
    if layout.data > 1:
        kinds.append(f"data parallel on {layout.data}")
    shared = layout.data * layout.context > 1
    strategy = f" ({_NAMES[layout.strategy]})" if shared else ""
    saving = ", all layers recomputed" if layout.recomputation == "full" else ""
    offload = f", {layout.offload} on the host" if layout.offload != "none" else ""
    return (" x ".join(kinds) or "one device") + strategy + saving + offload


def parameters(training: Training, layout: Layout) -> dict[str, str]:
    """Return the parameters of `language-model` that select this layout.

    The sizes of the model, the batch, PRECISION and STRATEGY are always returned. Other parameters are left
    out if the layout does not need them.
    """
    model = training.model
    found = {
        "LAYERS": str(model.layers),
        "HEADS": str(model.heads),
        "WIDTH": str(model.width),
        "CONTEXT": str(model.sequence),
        "BATCH_SIZE": str(training.batch),
        "PRECISION": training.precision,
        "STRATEGY": layout.strategy,
    }
    if layout.pipeline > 1:
        found["PIPELINE"] = str(layout.pipeline)
        if layout.stages > 1:
            found |= {"SCHEDULE": "interleaved", "STAGES_PER_RANK": str(layout.stages)}
        if model.layers % (layout.pipeline * layout.stages):
            found["SPLIT"] = "cost"
    if layout.tensor > 1:
        found["TENSOR"] = str(layout.tensor)
        if layout.sequence_parallel:
            found["SEQUENCE_PARALLEL"] = "true"
    if layout.micro_batches > 1:
        found["MICRO_BATCHES"] = str(layout.micro_batches)
    if layout.recomputation != "none":
        found["CHECKPOINTING"] = layout.recomputation
    if layout.offload != "none":
        found["OFFLOAD"] = layout.offload
    return found


def differences(model: Model) -> str:
    """Say how the model differs from the GPT that `language-model` trains; "" if it does not.

    The rules are the same as in language_model/model.py, which the client does not have.
    """
    found = [
        f"a vocabulary of {model.vocabulary} ({VOCABULARY})" if model.vocabulary != VOCABULARY else "",
        "a gated feed-forward part" if model.gated else "",
        f"a feed-forward part of {model.feed_forward} (4 WIDTH)"
        if model.feed_forward != 4 * model.width
        else "",
        f"{model.key_value_heads} heads of keys (HEADS)"
        if model.key_value_width != model.query_width
        else "",
        "a head that shares the embedding's matrix (a matrix of its own)" if model.tied else "",
        "attention in both directions (causal)" if not model.causal else "",
    ]
    differs = ", ".join(filter(None, found))
    if not differs:
        return ""
    return (
        "language-model trains a different model, to which the parameters only give this layout: "
        f"yours has {differs}."
    )


def verdict(decision: Decision) -> str:
    """Return a sentence that says how many devices to use, and with which layout."""
    layout = decision.best.layout
    if layout.devices == 1:
        return "The training fits one device: use one device."
    return f"Use {layout.devices} devices: {words(layout)}."


def reasons(training: Training, cluster: Cluster, decision: Decision, least_gain: float) -> Iterator[str]:
    """Yield the reasons for a decision. Each has one or two sentences."""
    best = decision.best
    yield from _of_memory(training, cluster, decision)
    yield from _of_pipeline(training, cluster, best)
    yield from _of_all_reduce(training, cluster, best)
    fewer = [count for count in decision.by_devices if count < best.layout.devices]
    if fewer:
        yield _compared(decision.by_devices[fewer[-1]], best, least_gain)
    more = [choice for count, choice in decision.by_devices.items() if count > best.layout.devices]
    if more:
        yield _compared(best, min(more, key=lambda choice: choice.step), least_gain)


def _of_memory(training: Training, cluster: Cluster, decision: Decision) -> Iterator[str]:
    best = decision.best.layout
    room = cluster.memory * (1 - costs.RESERVE)
    free = f"{gigabytes(room)} free of {gigabytes(cluster.memory)}"
    needed = costs.memory(training, Layout(micro_batches=training.batch))
    if best.devices > 1 and 1 not in decision.by_devices:
        states = gigabytes(training.states_bytes)
        yield (
            f"It does not fit one device: parameters, gradients and optimizer take {states}; with the "
            f"activations of one example, it needs {gigabytes(needed)}. A device has {free}."
        )
    if best.data * best.context > 1 and best.strategy != "ddp":
        whole = costs.memory(training, replace(best, strategy="ddp"))
        if whole > room:
            yield (
                f"With whole copies (DDP), a device would need {gigabytes(whole)}; {_NAMES[best.strategy]} "
                f"needs {gigabytes(decision.best.memory)}. A device has {free}."
            )
        else:
            yield (
                f"{_NAMES[best.strategy]} sends less than DDP here, since it sends parameters in "
                f"{training.precision}."
            )


def _of_pipeline(training: Training, cluster: Cluster, best: Choice) -> Iterator[str]:
    """Yield a sentence that compares a pipeline with a single stage for the same batch; nothing without a
    pipeline.

    The comparison assumes that one device has enough memory for all layers.
    """
    k, m, v = best.layout.pipeline, best.layout.micro_batches, best.layout.stages
    if k == 1:
        return
    alone = costs.time(training, cluster, replace(best.layout, pipeline=1, stages=1)).step
    time = best.time
    stage = time.work + time.recomputed + time.tensor + time.context
    factor = (v * m + k - 1) / (v * m)
    verb = "saves time" if alone >= best.step else "does not save time, but is needed to fit"
    rule = f"({v}m+k-1)/({v}m)" if v > 1 else "(m+k-1)/m"
    sign = "≥" if alone >= best.step else "<"
    yield (
        f"A pipeline of {k} {verb}: T_mini = {alone:.3g} s for the batch on one stage {sign} {rule} · T_macro"
        f" = {factor:.3f} · {stage:.3g} s, and {best.step - factor * stage:.3g} s of other traffic, with "
        f"k = {k} ranks and m = {m} micro-batches (for m = k, the factor is (2k-1)/k)."
    )


def _of_all_reduce(training: Training, cluster: Cluster, best: Choice) -> Iterator[str]:
    comparison = all_reduce.compared(training, cluster, best)
    if comparison is None:
        return
    times = ", ".join(
        f"{name} {seconds:.3g} s" for name, seconds in comparison.alone.items() if name != all_reduce.LIBRARY
    )
    of = f"On these links, summing {gigabytes(comparison.sent)} of gradients takes: {times}."
    if comparison.best == all_reduce.LIBRARY:
        yield f"{of} The library's ring waits the least, since the backward pass hides its messages."
        return
    saved = comparison.waiting[all_reduce.LIBRARY] - comparison.waiting[comparison.best]
    yield f"{of} ALL_REDUCE={comparison.best} waits {saved:.3g} s less in a step than the library's ring."


def _compared(few: Choice, many: Choice, least_gain: float) -> str:
    k, n = few.layout.devices, many.layout.devices
    speed_up = few.step / many.step
    each = (speed_up - 1) / (n / k - 1)
    return (
        f"{n} devices are {speed_up:.2f} x as fast as {k}: each added device adds {each:.0%} of a "
        f"device's speed (worth it from {least_gain:.0%})."
    )


def runner_up(decision: Decision) -> Choice | None:
    """Return the second-best choice: another shape on the same number of devices; if there is none, the
    fastest choice on another number of devices.

    None: there is no other choice.
    """
    if len(decision.at_best) > 1:
        return decision.at_best[1]
    used = decision.best.layout.devices
    others = [choice for count, choice in decision.by_devices.items() if count != used]
    return min(others, key=lambda choice: choice.step, default=None)


def rejected(best: Choice, other: Choice) -> str:
    """Say why the choice `other` is not the best one."""
    if other.step < best.step:
        ratio, used = best.step / other.step, other.layout.devices
        return f"{ratio:.2f} x as fast, but on {used} devices: each added device adds too little speed"
    slower = f"{other.step / best.step - 1:.1%} slower"
    more = {name: getattr(other.time, name) - getattr(best.time, name) for name in _PARTS}
    if other.layout.devices != best.layout.devices:
        return f"{slower}, on {other.layout.devices} devices"
    worst = max(more, key=lambda name: more[name])
    if more[worst] <= 0:
        return "not faster, and more complex"
    return f"{slower}: {more[worst]:.3g} s more for {_PARTS[worst]}"


def gigabytes(size: float) -> str:
    """Format bytes, in powers of 1000."""
    for unit, name in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} B"
