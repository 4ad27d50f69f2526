"""trainctl sweep."""

from pathlib import Path
from typing import Annotated

import typer

from training_service.client.cli.commands.assignments import parsed
from training_service.client.cli.commands.sweep_options import parsed_space
from training_service.client.cli.render import plots
from training_service.client.cli.session import session_of


def sweep(
    context: typer.Context,
    what: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE|FOLDER]", help="Settings in TOML, or a sweep that was begun."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the sweep in FOLDER.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End the sweep in FOLDER and its jobs.")] = False,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the sweep is kept; by default NAME.sweep.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a picture (.png, .svg or .pdf).")
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="What to train.")] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", metavar="ID", help="Its id.")] = None,
    version: Annotated[str | None, typer.Option(metavar="HASH", help="Of the dataset's version.")] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="Begins the names of the jobs.")] = None,
    instances: Annotated[int | None, typer.Option(help="How many processes train together.")] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="KEY=VALUE", help="A fixed parameter. Repeatable."),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            *("--search", "-s"),
            metavar="KEY=SPACE",
            help="A searched one: A,B,C or LOW..HIGH, with :log or :step=S behind it. Repeatable.",
        ),
    ] = None,
    method: Annotated[str | None, typer.Option(help="grid, random (the default) or tpe.")] = None,
    trials: Annotated[int | None, typer.Option(help="How many trials; a grid makes all there are.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed draws the same trials.")] = None,
    metric: Annotated[str | None, typer.Option("--metric", "-m", help="The objective.")] = None,
    direction: Annotated[str | None, typer.Option(help="maximize or minimize.")] = None,
    value: Annotated[
        str | None, typer.Option(help="Which of the metric: last (the default), best, or manifest.")
    ] = None,
    at_once: Annotated[int | None, typer.Option(min=1, help="Most jobs queued and running; 4.")] = None,
    max_failures: Annotated[int | None, typer.Option(min=1, help="Ends the sweep; by default 10.")] = None,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.01, help="How often to look at the jobs.")
    ] = 2.0,
) -> None:
    """Search for the best parameters: many trainings, so many at a time, resumable.

    FILE or options begin a sweep; with a FOLDER alone its trials are shown. Ctrl-C leaves the jobs to
    themselves, and --resume goes on. In a pipe each trial is a line, the best first: number, state,
    objective, job id, parameters, reason; with tabs between.
    """
    # With them comes pydantic, which takes half as long to import as all the rest, and only sweeps need it.
    from training_service.client.cli import sweep_folders, sweeping

    if to is not None:
        plots.check(to, "--to")
    if resume and cancel:
        raise typer.BadParameter("a sweep is resumed or cancelled, not both", param_hint="--cancel")
    given = sweep_folders.without_nothing(
        {
            "algorithm": algorithm,
            "dataset": dataset,
            "version": version,
            "name": name,
            "instances": instances,
            "parameters": parsed(parameter or (), "-p"),
            "space": parsed_space(search or (), "-s"),
            "method": method,
            "trials": trials,
            "seed": seed,
            "objective": {"metric": metric, "direction": direction, "value": value},
        }
    )
    limits = sweeping.Limits(at_once=at_once, max_failures=max_failures, every=every)
    session = session_of(context)
    begins = not (resume or cancel or (what is not None and what.is_dir()))
    if begins:
        path = sweep_folders.begun(what, folder, {**given, **limits.settings}, session.address)
    else:
        path = sweep_folders.found(what, folder, given)
    if cancel:
        sweeping.cancel_sweep(session, path)
    elif begins or resume:
        sweeping.run_sweep(session, path, limits)
    sweeping.show_sweep(session, path, to)
    if begins or resume:
        raise typer.Exit(sweeping.outcome(path))
