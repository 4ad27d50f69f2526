"""trainctl plan transformer: chooses the number of devices and the layout for training a transformer."""

from pathlib import Path
from typing import Annotated, Any

import typer

from training_service.client.cli.commands.quantities import quantity
from training_service.client.cli.output import Form, remark
from training_service.client.cli.render import plans
from training_service.client.cli.session import session_of
from training_service.client.planning import costs, model_config, network_file, reasons
from training_service.client.planning.cluster import EFFICIENCY, LINK_EFFICIENCY, Cluster
from training_service.client.planning.costs import Training
from training_service.client.planning.model import Model
from training_service.client.planning.search import LEAST_GAIN, Decision, Limits, decide

NAME = "transformer"

_LARGE = 8
"""The largest number of devices per machine if --per-machine is not given."""


def plan_transformer(
    context: typer.Context,
    instances: Annotated[int, typer.Option("--instances", "-n", help="The number of devices.")],
    device_memory: Annotated[
        str,
        typer.Option("--device-memory", metavar="SIZE", help="Memory of each device: 80G or 16Gi."),
    ],
    device_speed: Annotated[
        str,
        typer.Option(metavar="SPEED", help="Operations a second of a device, from its data sheet: 312T."),
    ],
    batch: Annotated[int, typer.Option(help="Examples per step, on all devices together.")],
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The model's config.json (Hugging Face).")
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Layers, without --config.")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads per layer, without --config.")] = None,
    width: Annotated[int | None, typer.Option(help="Width of the vectors, without --config.")] = None,
    vocabulary: Annotated[int | None, typer.Option(help="Size of the vocabulary, without --config.")] = None,
    sequence: Annotated[
        int | None, typer.Option(help="Tokens per example; by default the most that --config allows.")
    ] = None,
    model_parameters: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER", help="Expected number of parameters, such as 7G; checked within 10 %."
        ),
    ] = None,
    precision: Annotated[str, typer.Option(help="Number format of the passes: fp32, bf16 or fp16.")] = "bf16",
    optimizer: Annotated[str, typer.Option(help=f"One of {', '.join(costs.MOMENTS)}.")] = "adam",
    per_machine: Annotated[
        int | None, typer.Option(help=f"Devices per machine. [default: up to {_LARGE}]")
    ] = None,
    inner_bandwidth: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Bytes a second from a device to others in its machine."),
    ] = None,
    outer_bandwidth: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Bytes a second from a machine to others, over all links."),
    ] = None,
    inner_latency: Annotated[float | None, typer.Option(help="Latency within a machine, in seconds.")] = None,
    outer_latency: Annotated[float | None, typer.Option(help="Latency between machines, in seconds.")] = None,
    network: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The network.json of a network-check job.")
    ] = None,
    measured: Annotated[
        bool, typer.Option("--measured", help="--device-speed was measured in training: deduct nothing.")
    ] = False,
    layer_overhead: Annotated[
        float | None,
        typer.Option(help="Seconds to start the operations of a layer, for each micro-batch of any size."),
    ] = None,
    strategy: Annotated[
        list[str] | None, typer.Option(help=f"Allow only these: {', '.join(costs.STRATEGIES)}. Repeatable.")
    ] = None,
    recompute: Annotated[
        list[str] | None,
        typer.Option(help=f"Allow only these: {', '.join(costs.RECOMPUTATIONS)}. Repeatable."),
    ] = None,
    offload: Annotated[
        list[str] | None, typer.Option(help=f"Allow only these: {', '.join(costs.OFFLOADS)}. Repeatable.")
    ] = None,
    context_parallel: Annotated[
        bool, typer.Option("--context-parallel", help="Sequences may also be divided among devices.")
    ] = False,
    least_gain: Annotated[
        float, typer.Option(help="Share of a device's speed that each added device must add, 0 to 1.")
    ] = LEAST_GAIN,
    all_devices: Annotated[bool, typer.Option("--all-devices", help="Use all devices.")] = False,
) -> None:
    """Decide on how many devices, and with which parallelism, to train a transformer.

    Compares numbers of devices and layouts by formulas, without a connection to the service. The answer has
    the reasons, the runner-up with its costs, and parameters for the algorithm language-model.
    """
    try:
        model = _model(config, layers, heads, width, vocabulary, sequence, model_parameters)
        training = Training(model, batch, precision, optimizer)
        given: dict[str, Any] = {
            "inner_bandwidth": inner_bandwidth and quantity(inner_bandwidth, "--inner-bandwidth"),
            "outer_bandwidth": outer_bandwidth and quantity(outer_bandwidth, "--outer-bandwidth"),
            "inner_latency": inner_latency,
            "outer_latency": outer_latency,
            "layer_overhead": layer_overhead,
        }
        cluster = Cluster(
            memory=quantity(device_memory, "--device-memory"),
            speed=quantity(device_speed, "--device-speed", "speed"),
            **_machines(instances, per_machine),
            **(_measured_links(network) if network else {}),
            **{name: value for name, value in given.items() if value is not None},
            efficiency=1.0 if measured else EFFICIENCY,
        )
        limits = Limits(
            strategies=tuple(strategy or costs.STRATEGIES),
            recomputations=tuple(recompute or costs.RECOMPUTATIONS),
            offloads=tuple(offload or costs.OFFLOADS),
            context_parallel=context_parallel,
        )
        decision = decide(training, cluster, limits=limits, least_gain=least_gain, all_devices=all_devices)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not isinstance(decision, Decision):
        _nothing(training, cluster, decision.smallest)
        raise typer.Exit(1)
    entry = plans.Advice(training, cluster, decision, least_gain)
    output = session_of(context).output
    output.show(entry, plans.text, plans.panel, brief=plans.parameters)
    if output.form is Form.QUIET:  # the brief form does not show the refusals
        for refusal in entry.refusals:
            remark(refusal)


def command() -> Any:
    """Return the command, without the global options."""
    app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})
    app.command()(plan_transformer)
    return typer.main.get_command(app)


def _model(
    config: Path | None,
    layers: int | None,
    heads: int | None,
    width: int | None,
    vocabulary: int | None,
    sequence: int | None,
    expected: str | None,
) -> Model:
    sizes = {"layers": layers, "heads": heads, "width": width, "vocabulary": vocabulary}
    given: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    if config is not None:
        if given:
            raise ValueError(f"give either --config or the model's sizes, not also --{', --'.join(given)}")
        if sequence is not None and sequence < 1:
            raise ValueError(f"sequence is {sequence}; it must be above 0")
        model = model_config.read(config, sequence=sequence)
    else:
        needed = {"layers": layers, "heads": heads, "width": width, "sequence": sequence}
        if missing := [f"--{name}" for name, value in needed.items() if value is None]:
            raise ValueError(f"{', '.join(missing)} missing: give the model's sizes, or --config FILE")
        model = Model(**given, sequence=sequence or 0)
    if expected is not None:
        number = quantity(expected, "--model-parameters", "number")
        if abs(model.parameters - number) > 0.1 * number:
            raise ValueError(
                f"the sizes give {model.parameters:.4g} parameters,"
                f" but --model-parameters says {number:.4g}; "
                "correct one of them"
            )
    return model


def _machines(instances: int, per_machine: int | None) -> dict[str, Any]:
    if instances < 1:
        raise ValueError(f"--instances is {instances}; it must be at least 1")
    each = min(instances, _LARGE) if per_machine is None else per_machine
    if each < 1 or instances % each:
        raise ValueError(
            f"--instances {instances} is not a multiple of {each} devices per machine; set --per-machine"
        )
    return {"machines": instances // each, "per_machine": each}


def _measured_links(path: Path) -> dict[str, Any]:
    """Return the fields of Cluster that a network-check has measured.

    network-check measures the bandwidth that links reach. Cluster needs the rated bandwidth, which is
    computed from the measured one.
    """
    found = network_file.read(path)
    fields: dict[str, Any] = {}
    for kind, links in (("inner", found.inner), ("outer", found.outer)):
        if links is not None:
            fields[f"{kind}_latency"] = links.latency
            fields[f"{kind}_bandwidth"] = links.bandwidth / LINK_EFFICIENCY
    return fields


def _nothing(training: Training, cluster: Cluster, smallest: Any) -> None:
    devices = cluster.devices
    if smallest is None:
        remark(
            "no layout is valid: the number of devices must be the product of the data, tensor and pipeline "
            f"ranks. Data ranks must divide --batch {training.batch}. Tensor ranks share a machine: at most "
            f"{cluster.per_machine}. They must divide {training.model.heads} heads, the key-value heads and "
            f"the sequence. Pipeline ranks: at most {training.model.layers}, and at most as many as a data "
            "rank has examples"
        )
        return
    states = reasons.gigabytes(training.states_bytes)
    remark(
        f"the training does not fit on 1 to {devices} devices of {reasons.gigabytes(cluster.memory)} each: "
        f"parameters, gradients and optimizer take {states}. The smallest layout needs "
        f"{reasons.gigabytes(smallest.memory)} on each of {smallest.layout.devices} devices, and "
        f"{costs.RESERVE:.0%} of the memory stays in reserve. This layout: {reasons.words(smallest.layout)}"
    )
