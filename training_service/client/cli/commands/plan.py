"""trainctl plan."""

import importlib
import json
import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.table import Table

from training_service.client.cli.output import remark
from training_service.client.cli.session import session_of

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_SHOWN = 12


@dataclass(frozen=True)
class Row:
    """One layout that fits, as it is told."""

    parameters: dict[str, str]
    memory_bytes: float
    bytes_sent: float
    bubble: float
    recomputed: float
    slowdown: float

    def as_json(self) -> str:
        """One line of JSON."""
        return json.dumps(vars(self))


def plan(
    context: typer.Context,
    instances: Annotated[
        int, typer.Option("--instances", "-n", help="Devices to train on.", min=1, max=4096)
    ],
    device_memory: Annotated[
        str, typer.Option("--device-memory", "-m", metavar="SIZE", help="Of each, as 16Gi or 80G.")
    ],
    layers: Annotated[int, typer.Option(help="Of the model.", min=1, max=10_000)] = 4,
    heads: Annotated[int, typer.Option(help="Of its attention.", min=1, max=10_000)] = 4,
    width: Annotated[int, typer.Option(help="Of its vectors.", min=1, max=1_000_000)] = 64,
    sequence: Annotated[int, typer.Option(help="Tokens of an example.", min=1, max=4095)] = 64,
    batch: Annotated[int, typer.Option(help="Examples of a step, in all.", min=1, max=1_000_000)] = 16,
    precision: Annotated[str, typer.Option(help="fp32 or bf16, of the passes.")] = "fp32",
    every: Annotated[bool, typer.Option("--all", help=f"All that fit, not the best {_SHOWN}.")] = False,
) -> None:
    """Which parallelism fits a model and devices, and what it costs, by formulas; asks no service.

    For the algorithm language-model: the first column holds the parameters to submit it with. The best is
    first: what loses least time to waiting and to work done twice, then what sends least.
    """
    planning, layouts = _formulas()
    try:
        model = layouts.Layout(
            world_size=1,
            layers=layers,
            heads=heads,
            width=width,
            context=sequence,
            batch_size=batch,
            precision=layouts.Precision(precision),
        )
        device = size_of(device_memory)
    except (ValueError, layouts.ParameterError) as error:
        raise typer.BadParameter(str(error)) from error
    found = planning.choices(model, instances, device)
    if not found:
        least = planning.least(model, instances)
        told = (
            f"; the least needs {shown(least.memory)} of each: {_words(_changed(least.layout))}"
            if least
            else ""
        )
        remark(f"nothing fits {instances} devices of {device_memory}{told}")
        raise typer.Exit(1)
    rows = [row_of(choice) for choice in (found if every else found[:_SHOWN])]
    session_of(context).output.show_all(rows, _line, _table)
    if len(found) > len(rows):
        remark(f"{len(found) - len(rows)} more fit; --all shows them")


def row_of(choice: Any) -> Row:
    """What is told of a planning.Choice."""
    return Row(
        _changed(choice.layout),
        choice.memory,
        choice.bytes_sent,
        choice.bubble,
        choice.recomputed,
        choice.slowdown,
    )


def size_of(text: str) -> float:
    """Bytes. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]i?)?B?", text)
    if match is None or float(match[1]) == 0:
        raise ValueError(f"--device-memory {text!r} is no size; write it as 16Gi, 80G or 512Mi")
    return float(match[1]) * _UNITS[match[2] or ""]


def shown(size: float) -> str:
    """Bytes, for people."""
    for unit in ("Gi", "Mi", "Ki"):
        if size >= _UNITS[unit]:
            return f"{size / _UNITS[unit]:.3g} {unit}B"
    return f"{size:.0f} B"


def _formulas() -> tuple[Any, Any]:
    """Those of the training code, which is no part of the client, and not installed everywhere."""
    try:
        names = ("language_model.planning", "language_model.layout")
        planning, layouts = (importlib.import_module(name) for name in names)
    except ModuleNotFoundError as error:
        remark(f"the formulas are in the package trainer-images, which is not installed here: {error}")
        raise typer.Exit(1) from error
    return planning, layouts


def _changed(layout: Any) -> dict[str, str]:
    """The parameters that make the layout, but for those of the model and the defaults."""
    names = ("strategy", "pipeline", "tensor", "sequence_parallel", "loss_parallel", "micro_batches")
    values = {name: getattr(layout, name) for name in (*names, "checkpointing", "offload")}
    plain = {"pipeline": 1, "tensor": 1, "micro_batches": 1, "checkpointing": "none", "offload": "none"}
    return {
        name.upper(): "1" if value is True else str(value)
        for name, value in values.items()
        if value is not False and plain.get(name) != value
    }


def _words(parameters: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in parameters.items())


def _line(row: Row) -> str:
    costs = (row.memory_bytes, row.bytes_sent, row.bubble, row.recomputed, row.slowdown)
    return "\t".join((_words(row.parameters), *(f"{cost:.6g}" for cost in costs)))


def _table(rows: Any) -> Table:
    table = Table(box=None, header_style="bold")
    for head in ("parameters", "memory", "sent a step", "waits", "done twice", "slower"):
        table.add_column(head, justify="left" if head == "parameters" else "right")
    for row in rows:
        table.add_row(
            _words(row.parameters),
            shown(row.memory_bytes),
            shown(row.bytes_sent),
            f"{row.bubble:.0%}",
            f"{row.recomputed:.0%}",
            f"{row.slowdown:.2f} x",
        )
    return table
