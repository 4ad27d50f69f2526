"""trainctl plan: runs the planner of an algorithm and shows its choices.

A planner is an entry point of the group `trainctl.planners` in the package of its algorithm, with the
algorithm's name. It is a function whose first two parameters are the number of devices, and the memory of a
device in bytes. Typer turns the planner's other parameters into options. The planner returns two values. The
first is a list of the choices that fit, the best first. The second is the choice with the least memory, which
is shown if no choice fits. This second value is None if no choice is valid at all. Each choice has the
attributes of Row. A planner raises ValueError for contradictory options.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Self

import typer
from rich.table import Table
from typer.core import TyperCommand

from training_service.client.cli.commands import plan_transformer
from training_service.client.cli.commands.quantities import quantity
from training_service.client.cli.output import remark
from training_service.client.cli.session import session_of

Planner = Callable[..., tuple[Sequence[Any], Any | None]]

_GROUP = "trainctl.planners"
_UNITS = {"Gi": 1 << 30, "Mi": 1 << 20, "Ki": 1 << 10}
_SHOWN = 12

Instances = Annotated[int, typer.Option("--instances", "-n", help="Devices to train on.", min=1, max=4096)]
DeviceMemory = Annotated[
    str,
    typer.Option("--device-memory", metavar="SIZE", help="Memory of each device, such as 16Gi or 80G."),
]
Every = Annotated[bool, typer.Option("--all", help=f"Show all choices found, not only the best {_SHOWN}.")]


@dataclass(frozen=True)
class Row:
    """One choice of a planner and its costs."""

    parameters: Mapping[str, str]
    """Parameters for `trainctl submit`."""
    memory_bytes: float
    """The memory of the device that needs the most."""
    bytes_sent: float
    """Bytes that a rank sends per step, on average."""
    bubble: float
    """The share of the time in which a rank waits for other ranks of its pipeline."""
    recomputed: float
    """Recomputed work, as a share of a step's work."""
    slowdown: float
    """The time of a step, relative to the time of its work alone."""

    @classmethod
    def of(cls, choice: Any) -> Self:
        """Create a row from a planner's choice."""
        return cls(**{field.name: getattr(choice, field.name) for field in fields(cls)})

    def as_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(vars(self))


def plan() -> None:
    """Find the kinds of parallelism with which a model fits on devices, and their costs.

    The costs are computed by formulas, without a connection to the service.
    """
    remark(
        "no planner is installed. Install the package of an algorithm that has one, such as trainer-images "
        "(in a checkout: pip install ./trainer_images). `trainctl plan transformer` plans any transformer"
    )
    raise typer.Exit(1)


class PlanCommand(TyperCommand):
    """Runs a planner in place of `plan`: `trainctl plan [ALGORITHM] OPTIONS`.

    `transformer` is the client's own planner, for the transformers of any program. If `transformer` is not
    named, and no planner is installed, `plan` itself runs.
    """

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Create the context for the planner that the first argument names."""
        planners = {each.name: each for each in entry_points(group=_GROUP)}
        if args[:1] == [plan_transformer.NAME]:
            command = plan_transformer.command()
            args = args[1:]
        elif planners:
            command = _command(_chosen(planners, args))
        else:
            return super().make_context(info_name, args, parent, **extra)
        command.params += self.params  # the global options
        return command.make_context(info_name, args, parent, **extra)


def _chosen(planners: Mapping[str, EntryPoint], args: list[str]) -> Planner:
    """Return the planner that the first argument names, and remove this argument.

    A single planner needs no name.
    """
    named = bool(args) and not args[0].startswith("-")
    name = args.pop(0) if named else "" if len(planners) > 1 else next(iter(planners))
    if name not in planners:
        problem = f"no planner for '{name}'; " if named else ""
        names = sorted((*planners, plan_transformer.NAME))
        raise typer.BadParameter(f"{problem}the first argument is one of {', '.join(names)}")
    try:
        planner: Planner = planners[name].load()
    except ImportError as error:
        remark(f"the planner of {name} cannot be loaded: {error}")
        raise typer.Exit(1) from error
    return planner


def _command(planner: Planner) -> Any:
    """Create the command of a planner, with the planner's parameters as options."""

    def run(
        context: typer.Context,
        instances: Instances,
        device_memory: DeviceMemory,
        *,
        every: Every = False,
        **options: Any,
    ) -> None:
        try:
            found, least = planner(instances, quantity(device_memory, "--device-memory"), **options)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        if not found:
            if least is None:
                remark(f"no choice is valid on {instances} devices, however much memory they have")
            else:
                needs = f"the smallest choice needs {_least(Row.of(least))}"
                remark(f"nothing fits on {instances} devices of {device_memory}; {needs}")
            raise typer.Exit(1)
        rows = [Row.of(choice) for choice in (found if every else found[:_SHOWN])]
        session_of(context).output.show_all(rows, _line, _table)
        if len(found) > len(rows):
            remark(f"{len(found) - len(rows)} more fit; --all shows them")

    context, instances, device_memory, every, _ = inspect.signature(run).parameters.values()
    _, _, *own = inspect.signature(planner, eval_str=True).parameters.values()
    signature = inspect.Signature([context, instances, device_memory, *own, every])
    run.__signature__ = signature  # type: ignore[attr-defined]  # Typer reads the options from it
    app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})
    app.command(help=f"{plan.__doc__}\n\n{inspect.getdoc(planner) or ''}")(run)
    return typer.main.get_command(app)


def shown(size: float) -> str:
    """Format a number of bytes for people."""
    for unit, bytes_of in _UNITS.items():
        if size >= bytes_of:
            return f"{size / bytes_of:.3g} {unit}B"
    return f"{size:.0f} B"


def _least(row: Row) -> str:
    return f"{shown(row.memory_bytes)} on each device: {_words(row.parameters)}"


def _words(parameters: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in parameters.items())


def _line(row: Row) -> str:
    costs = (row.memory_bytes, row.bytes_sent, row.bubble, row.recomputed, row.slowdown)
    return "\t".join((_words(row.parameters), *(f"{cost:.6g}" for cost in costs)))


def _table(rows: Any) -> Table:
    table = Table(box=None, header_style="bold")
    for head in ("parameters", "memory", "sent per step", "waiting", "recomputed", "slowdown"):
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
