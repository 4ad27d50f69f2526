"""The pod options of `trainctl submit` and `trainctl run`."""

from collections.abc import Sequence
from typing import Annotated

import typer

from training_service._generated.training_service_pb2 import Placement, PodOptions, Toleration
from training_service.client.cli.commands.assignments import parsed

_PANEL = "Instances (options that the service's backend has and its configuration allows)"

Resources = Annotated[
    list[str] | None,
    typer.Option(
        "--resource",
        "-r",
        metavar="NAME=QUANTITY",
        help="Resources of each instance, such as cpu=2, memory=4Gi or gpu=1 (nvidia.com/gpu). Repeatable.",
        rich_help_panel=_PANEL,
    ),
]
ProcessesPerInstance = Annotated[
    int,
    typer.Option("--nproc-per-node", min=1, help="Training processes per instance.", rich_help_panel=_PANEL),
]
NodeSelector = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LABEL=VALUE", help="A label that nodes must have. Repeatable.", rich_help_panel=_PANEL
    ),
]
Tolerations = Annotated[
    list[str] | None,
    typer.Option(
        "--toleration",
        metavar="KEY[=VALUE][:EFFECT]",
        help="A taint to tolerate, as in kubectl. Repeatable.",
        rich_help_panel=_PANEL,
    ),
]
PriorityClass = Annotated[
    str, typer.Option(metavar="NAME", help="The pods' priority class.", rich_help_panel=_PANEL)
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label", metavar="KEY=VALUE", help="A label for the pods. Repeatable.", rich_help_panel=_PANEL
    ),
]
Annotations = Annotated[
    list[str] | None,
    typer.Option(
        "--annotation",
        metavar="KEY=VALUE",
        help="An annotation for the pods. Repeatable.",
        rich_help_panel=_PANEL,
    ),
]
Near = Annotated[
    str,
    typer.Option(
        metavar="PLACE",
        help="Put instances near each other: in one machine, rack or zone.",
        rich_help_panel=_PANEL,
    ),
]
Apart = Annotated[
    str,
    typer.Option(
        metavar="PLACE", help="Put each instance in another machine, rack or zone.", rich_help_panel=_PANEL
    ),
]
StrictPlacement = Annotated[
    bool,
    typer.Option(
        "--strict-placement", help="Wait until --near and --apart are possible.", rich_help_panel=_PANEL
    ),
]


def pod_options(
    *,
    resources: Sequence[str] | None,
    nproc_per_node: int,
    node_selector: Sequence[str] | None,
    tolerations: Sequence[str] | None,
    priority_class: str,
    labels: Sequence[str] | None,
    annotations: Sequence[str] | None,
    near: str,
    apart: str,
    strict_placement: bool,
) -> PodOptions:
    """Build the PodOptions of a request from the options. Raises BadParameter if one is not valid."""
    if strict_placement and not (near or apart):
        raise typer.BadParameter("it needs --near or --apart", param_hint="--strict-placement")
    return PodOptions(
        resources=parsed([_with_domain(text) for text in resources or ()], "--resource"),
        nproc_per_node=nproc_per_node if nproc_per_node > 1 else 0,
        node_selector=parsed(node_selector or (), "--node-selector"),
        tolerations=[_toleration(text) for text in tolerations or ()],
        priority_class=priority_class,
        labels=parsed(labels or (), "--label"),
        annotations=parsed(annotations or (), "--annotation"),
        placement=Placement(near=near, apart=apart, strict=strict_placement) if near or apart else None,
    )


def _with_domain(assignment: str) -> str:
    return f"nvidia.com/{assignment}" if assignment.startswith("gpu=") else assignment


def _toleration(text: str) -> Toleration:
    assignment, _, effect = text.partition(":")
    key, equals, value = assignment.partition("=")
    return Toleration(key=key, operator="Equal" if equals else "Exists", value=value, effect=effect)
