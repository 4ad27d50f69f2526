"""trainctl scale."""

from pathlib import Path
from typing import Annotated

import typer

from training_service.client.cli.commands.assignments import parsed
from training_service.client.cli.commands.sweep_options import parsed_space
from training_service.client.cli.render import plots, scaling
from training_service.client.cli.session import session_of
from training_service.client.requests import INSTANCES_PARAMETER

RATE = "examples_per_second"
"""The metric by default."""


def scale(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="ALGORITHM|FOLDER", help="What to train, or the folder of a study.")
    ],
    instances: Annotated[
        str | None, typer.Option(metavar="N,N,…", help="The numbers of instances to try, such as 1,2,4,8.")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option("--search", "-s", metavar="KEY=A,B", help="Also try these values. Repeatable."),
    ] = None,
    weak: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=NUMBER",
            help="Weak scaling: multiply this parameter by the instances, such as BATCH_SIZE=16. Repeatable.",
        ),
    ] = None,
    strong: Annotated[
        bool, typer.Option("--strong", help="Strong scaling, the default: all parameters stay the same.")
    ] = False,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="KEY=VALUE", help="A fixed parameter. Repeatable."),
    ] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", metavar="ID")] = None,
    version: Annotated[str | None, typer.Option(metavar="HASH", help="The dataset's version.")] = None,
    metric: Annotated[
        str, typer.Option("--metric", "-m", help="The metric with the examples of a second of all instances.")
    ] = RATE,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder of a new study; by default ALGORITHM.scale."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the study in FOLDER.")] = False,
    least_efficiency: Annotated[
        float, typer.Option(help="Share of the speed of one instance that an added one must add.")
    ] = 0.5,
    price: Annotated[float | None, typer.Option(help="Price of an instance and hour.")] = None,
    value_of_time: Annotated[
        float | None, typer.Option(help="What an hour of waiting costs, in the same money.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a plot to FILE (.png, .svg or .pdf).")
    ] = None,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.01, help="The time between two checks of the jobs.")
    ] = 2.0,
) -> None:
    """Measure how training gets faster with more instances, and how many are worth it.

    Runs one job at a time for each number of instances. A FOLDER shows a study again, with other prices if
    you like; --resume continues it after Ctrl-C, a kill or a crash.
    """
    # Imported here, since only sweeps and studies need pydantic.
    from training_service.client.cli import sweep_folders, sweeping
    from training_service.client.scaling.study import STEP, WAITING, series_of

    _check_prices(least_efficiency, price, value_of_time)
    if to is not None:
        plots.check(to, "--to")
    if strong and weak:
        raise typer.BadParameter("give either --strong or --weak KEY=NUMBER, not both", param_hint="--strong")
    session = session_of(context)
    limits = sweeping.Limits(at_once=1, max_failures=None, every=every)
    begins = not (resume or Path(what).is_dir())
    if begins:
        if instances is None:
            raise typer.BadParameter(
                "missing; give the numbers to try, such as 1,2,4,8", param_hint="--instances"
            )
        settings = {
            "algorithm": what,
            "name": what[:60],
            "dataset": dataset,
            "version": version,
            "parameters": parsed(parameter or (), "-p"),
            "per_instance": _numbers(weak or ()),
            # The number of instances changes fastest, so that the first series is complete first.
            "space": {**parsed_space(search or (), "-s"), INSTANCES_PARAMETER: _counts(instances)},
            "method": "grid",
            "objective": {
                **{"metric": metric, "direction": "maximize", "value": "median"},
                "beside": [STEP, WAITING],
            },
            # One at a time: jobs that run beside each other share machines and links.
            "at_once": 1,
        }
        path = sweep_folders.create(
            *(None, folder or Path(f"{what}.scale"), settings, session.connection.address),
            lambda: sweeping.project_of(session),
        )
    else:
        path = Path(what)
    if begins or resume:
        sweeping.run_sweep(session, path, limits)
    record, history = sweeping.read(path)
    if INSTANCES_PARAMETER not in record.settings.space:
        raise typer.BadParameter(
            f"{path} is not a study of scaling: its sweep does not vary {INSTANCES_PARAMETER}"
        )
    prices = scaling.Prices(least_efficiency, price, value_of_time)
    shown = [scaling.Shown(series, prices) for series in series_of(record.settings, history.trials)]
    session.output.show_all(shown, scaling.line, scaling.tables)
    if to is not None:
        scaling.save(shown, to)
        session.output.note(f"wrote {to}")
    if begins or resume:
        raise typer.Exit(sweeping.outcome(path))


def _counts(text: str) -> list[int]:
    counts = []
    for part in text.split(","):
        if not part.strip().isdecimal() or not 0 < int(part) <= 100_000:
            raise typer.BadParameter(
                f"'{part}' is not a number of instances; write for example 1,2,4,8", param_hint="--instances"
            )
        counts.append(int(part))
    return counts


def _numbers(texts: list[str] | tuple[()]) -> dict[str, int]:
    values = parsed(texts, "--weak")
    for name, text in values.items():
        if not text.isdecimal() or int(text) < 1:
            raise typer.BadParameter(
                f"{name} is '{text}'; it must be a whole number above 0; it is multiplied by the instances",
                param_hint="--weak",
            )
    return {name: int(text) for name, text in values.items()}


def _check_prices(least: float, price: float | None, value_of_time: float | None) -> None:
    if not 0 < least <= 1:
        raise typer.BadParameter(f"{least:g} must be above 0 and at most 1", param_hint="--least-efficiency")
    for option, amount in (("--price", price), ("--value-of-time", value_of_time)):
        if amount is not None and not 0 <= amount < float("inf"):
            raise typer.BadParameter(f"{amount:g} must be 0 or more", param_hint=option)
    if value_of_time is not None and not price:
        raise typer.BadParameter("needs --price above 0", param_hint="--value-of-time")
