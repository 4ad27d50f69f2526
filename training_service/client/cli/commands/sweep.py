"""trainctl sweep."""

from pathlib import Path
from typing import Annotated

import typer

from training_service.client.cli.commands import policy_options
from training_service.client.cli.commands.assignments import parsed
from training_service.client.cli.commands.sweep_options import parsed_space
from training_service.client.cli.render import plots
from training_service.client.cli.session import session_of


def sweep(
    context: typer.Context,
    what: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE|FOLDER]",
            help="FILE: the settings of a new sweep, in TOML. FOLDER: an existing sweep.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the sweep in FOLDER.")] = False,
    best: Annotated[
        bool,
        typer.Option("--best", help="Show the best trial of the sweep in FOLDER, and what to do with it."),
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the sweep in FOLDER and its jobs.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder of a new sweep; by default NAME.sweep, with the NAME of FILE or of --name.",
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a plot to FILE (.png, .svg or .pdf).")
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="The algorithm to train.")] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", "-d", metavar="ID", help="The dataset's id.")
    ] = None,
    version: Annotated[
        str | None, typer.Option(metavar="HASH", help="The hash of the dataset's version.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The name of the sweep; job names start with it.")] = None,
    instances: Annotated[
        int | None, typer.Option("--instances", "-n", help="The number of instances that train together.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="KEY=VALUE", help="A fixed parameter. Repeatable."),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            *("--search", "-s"),
            metavar="KEY=SPACE",
            help="A parameter to search: A,B,C or LOW..HIGH, LOW..HIGH:log or LOW..HIGH:step=S. Repeatable.",
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="The search method: grid, random or tpe; by default random.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="The number of trials; not for grid, which tries all combinations.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of random choices.")] = None,
    metric: Annotated[str | None, typer.Option("--metric", "-m", help="The metric to optimize.")] = None,
    direction: Annotated[str | None, typer.Option(help="maximize or minimize the metric.")] = None,
    value: Annotated[
        str | None,
        typer.Option(help="The value of the metric to use: last, best, median or manifest; by default last."),
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="The maximum number of live jobs; by default 4.")
    ] = None,
    max_failures: Annotated[
        int | None,
        typer.Option(min=1, help="Submit no more trials after this many have failed; by default 10."),
    ] = None,
    queue: policy_options.Queue = "",
    priority: policy_options.Priority = "",
    expected: policy_options.Expected = None,
    flavor: policy_options.Flavor = "",
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.01, help="The time between two checks of the jobs.")
    ] = 2.0,
) -> None:
    """Search for the best parameters with many jobs.

    A FILE or options start a sweep. A FOLDER shows the trials of its sweep or, with --best, only the best
    trial. Ctrl-C leaves the jobs running, and --resume resumes the sweep. In a pipe, each trial is one line,
    the best first: number, state, objective, job id, parameters and reason, separated by tabs.
    """
    # Imported here, because only sweeps and studies need pydantic. Its import takes half as long as all other
    # imports together.
    from training_service.client.cli import sweep_folders, sweeping

    if to is not None:
        plots.check(to, "--to")
    if resume + cancel + best > 1:
        raise typer.BadParameter("give only one of --resume, --cancel and --best", param_hint="--cancel")
    given = sweep_folders.without_empty(
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
            "queue": queue or None,
            "priority": priority or None,
            "flavor": flavor or None,
            "expected": None if expected is None else expected.total_seconds(),
            "objective": {"metric": metric, "direction": direction, "value": value},
        }
    )
    limits = sweeping.Limits(at_once=at_once, max_failures=max_failures, every=every)
    session = session_of(context)
    begins = not (resume or cancel or best or (what is not None and what.is_dir()))
    if begins:
        path = sweep_folders.create(
            *(what, folder, {**given, **limits.settings}, session.connection.address),
            lambda: sweeping.project_of(session),
        )
    else:
        path = sweep_folders.find(what, folder, given)
    if best:
        sweeping.show_best(session, path)
        return
    if cancel:
        sweeping.cancel_sweep(session, path)
    elif begins or resume:
        sweeping.run_sweep(session, path, limits)
    sweeping.show_sweep(session, path, to)
    if begins or resume:
        raise typer.Exit(sweeping.outcome(path))
