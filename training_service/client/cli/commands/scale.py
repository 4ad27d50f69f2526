"""trainctl scale."""

from pathlib import Path
from typing import Annotated

import typer

from training_service.client.cli.commands import study_options
from training_service.client.cli.commands.assignments import parsed
from training_service.client.cli.commands.sweep_options import parsed_space
from training_service.client.cli.render import plots, scaling
from training_service.client.cli.session import session_of
from training_service.client.requests import INSTANCES_PARAMETER


def scale(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(metavar="ALGORITHM|FOLDER", help="The algorithm to train, or the folder of a study."),
    ],
    instances: Annotated[
        str | None,
        typer.Option(
            *("--instances", "-n"), metavar="N,N,…", help="The numbers of instances to try, such as 1,2,4,8."
        ),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option("--search", "-s", metavar="KEY=A,B", help="Also try these values. Repeatable."),
    ] = None,
    weak: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=NUMBER",
            help="Weak scaling: a parameter per instance, such as BATCH_SIZE=16, which is multiplied by the "
            "number of instances. Repeatable.",
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
        str | None,
        typer.Option(
            "--metric", "-m", help="The metric with the examples per second of all instances together."
        ),
    ] = None,
    enough: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", min=1, max=500, help="End each job after this many values of the metric."
        ),
    ] = None,
    placements: Annotated[
        str | None,
        typer.Option(
            metavar="PLACEMENT,…",
            help="Also try these placements, such as near:machine,near:rack,apart:machine.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder of a new study; by default ALGORITHM.scale."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the study in FOLDER.")] = False,
    least_efficiency: study_options.LeastEfficiency = 0.5,
    price: study_options.Price = None,
    value_of_time: study_options.ValueOfTime = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a plot to FILE (.png, .svg or .pdf).")
    ] = None,
    every: study_options.Every = 2.0,
) -> None:
    """Measure how much faster training gets with more instances, and how many are worth using.

    Runs a job for each number of instances, one job at a time. With a FOLDER, the command shows the results
    of a study again, with other prices if you like. With --resume, it continues the study after Ctrl-C, a
    kill or a crash.
    """
    # Imported here, because only sweeps and studies need pydantic.
    from training_service.client.cli import sweep_folders, sweeping
    from training_service.client.scaling.study import RATE, compared, series_of, settings_of
    from training_service.client.sweeps.placements import PLACEMENT

    prices = study_options.prices(least_efficiency, price, value_of_time)
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
        space = parsed_space(search or (), "-s")
        settings = settings_of(
            what,
            _counts(instances),
            {
                "dataset": dataset,
                "version": version,
                "parameters": parsed(parameter or (), "-p"),
                "per_instance": _numbers(weak or ()),
                "space": space | ({PLACEMENT: placements.split(",")} if placements else {}),
                "enough": enough,
            },
            metric or RATE,
        )
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
    found = series_of(record.settings, history.trials)
    pairs = zip(found, compared(found), strict=True)
    shown = [scaling.Shown(series, prices, comparison) for series, comparison in pairs]
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
                f"{name} is '{text}'; it must be a whole number above 0, the value for one instance",
                param_hint="--weak",
            )
    return {name: int(text) for name, text in values.items()}
