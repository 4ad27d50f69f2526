"""trainctl sweep."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from training_service.client.cli.commands.assignments import parsed
from training_service.client.cli.commands.searches import parsed_space
from training_service.client.cli.render import plots
from training_service.client.cli.session import Session, session_of
from training_service.client.cli.sweeping import Limits, cancel_sweep, outcome, run_sweep, show_sweep
from training_service.client.sweeps import folder as folders
from training_service.client.sweeps.methods import method_of, pruner_of
from training_service.client.sweeps.settings import checked


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
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", metavar="ID")] = None,
    version: Annotated[str | None, typer.Option(metavar="HASH", help="Of the dataset.")] = None,
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
    if to is not None:
        plots.check(to, "--to")
    if resume and cancel:
        raise typer.BadParameter("a sweep is resumed or cancelled, not both", param_hint="--cancel")
    given = _without_nothing(
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
    limits = Limits(at_once=at_once, max_failures=max_failures, every=every)
    session = session_of(context)
    begins = not (resume or cancel or (what is not None and what.is_dir()))
    path = _begun(session, what, folder, given, limits) if begins else _found(what, folder, given)
    if cancel:
        cancel_sweep(session, path)
    elif begins or resume:
        run_sweep(session, path, limits)
    show_sweep(session, path, to)
    if resume or begins:
        raise typer.Exit(outcome(path))


def _begun(
    session: Session, file: Path | None, folder: Path | None, given: dict[str, Any], limits: Limits
) -> Path:
    """The folder of a new sweep by what was given, on the command line over the file."""
    document = {"name": file.stem, **_read(file)} if file else {}
    for key, value in {**given, **_without_nothing(limits.settings)}.items():
        table = document.get(key)
        document[key] = {**table, **value} if isinstance(table, dict) and isinstance(value, dict) else value
    settings = checked(document)
    # What needs Optuna says so now, while nothing has begun.
    method_of(settings)
    pruner_of(settings)
    path = folder or _usual_folder(file, settings.name)
    folders.begin(path, settings, session.address)
    return path


def _found(what: Path | None, folder: Path | None, given: dict[str, Any]) -> Path:
    """The folder of a sweep that was begun, by itself or by the file that it was begun with."""
    if given:
        raise typer.BadParameter(f"a sweep that was begun keeps its settings; not {', '.join(given)}")
    if what is not None and not what.is_file():
        return what
    if folder is None and what is None:
        raise typer.BadParameter("say which sweep: its folder", param_hint="FOLDER")
    return folder or _usual_folder(what, "")


def _usual_folder(file: Path | None, name: str) -> Path:
    return Path(f"{file.stem if file else name}.sweep")


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise typer.BadParameter(f"'{file}' cannot be read: {error.strerror}", param_hint="FILE") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"'{file}' is not valid TOML: {error}", param_hint="FILE") from error


def _without_nothing(values: Mapping[str, Any]) -> dict[str, Any]:
    """What was given: neither None nor empty."""
    inner = {key: _without_nothing(v) if isinstance(v, dict) else v for key, v in values.items()}
    return {key: value for key, value in inner.items() if value is not None and value != {}}
