"""The options of `trainctl submit --instances auto`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from google.protobuf import json_format
from google.protobuf.message import Message

from training_service.client.cli.commands import study_options

if TYPE_CHECKING:
    from training_service.client.cli.auto_instances import Decision, Wish
    from training_service.client.cli.session import Session

AUTO = "auto"
ENOUGH = 30
"""The default of `Wish.enough`. The study uses the median of the values, so slow first steps do no harm."""
_PANEL = "With --instances auto"

MinInstances = Annotated[
    int | None,
    typer.Option(
        min=1, help="The smallest number of instances to try; 1 by default.", rich_help_panel=_PANEL
    ),
]
MaxInstances = Annotated[
    int | None,
    typer.Option(min=2, help="The largest number of instances to try. Required.", rich_help_panel=_PANEL),
]
LeastEfficiency = Annotated[
    float | None,
    typer.Option(
        help="Share of the speed of one instance that each added instance must add; 0.5 by default.",
        rich_help_panel=_PANEL,
    ),
]
Price = Annotated[
    float | None, typer.Option(help="Price of an instance for an hour.", rich_help_panel=_PANEL)
]
ValueOfTime = Annotated[
    float | None,
    typer.Option(help="Price of an hour of waiting, in the same currency.", rich_help_panel=_PANEL),
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        "-m",
        help="The metric with the examples per second of all instances together. "
        "Default: examples_per_second.",
        rich_help_panel=_PANEL,
    ),
]
Enough = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        min=1,
        max=500,
        help="End each job of the study after this many values of the metric; 30 by default.",
        rich_help_panel=_PANEL,
    ),
]
Study = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="The folder of the study; by default ALGORITHM.auto.", rich_help_panel=_PANEL
    ),
]
Every = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", min=0.01, help="The time between two checks of jobs.", rich_help_panel=_PANEL
    ),
]


def number(text: str | None) -> int | None:
    """Return the number in --instances; None for `auto`, or if the option is not given.

    Raises BadParameter for any other text.
    """
    if text is None or text == AUTO:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(
            f"'{text}' must be a whole number above 0, or auto", param_hint="--instances"
        )
    return int(text)


def wish(algorithm: str, *, wanted: bool, **given: Any) -> Wish | None:
    """Return the options of a study as a Wish; None if no study is `wanted`.

    Raises BadParameter if an option is missing or not allowed, or is given although no study is wanted.
    """
    if not wanted:
        if unused := next((name for name, value in given.items() if value is not None), None):
            raise typer.BadParameter("it needs --instances auto", param_hint="--" + unused.replace("_", "-"))
        return None
    from training_service.client.cli.auto_instances import Wish
    from training_service.client.scaling.study import RATE

    least, most = given["min_instances"] or 1, given["max_instances"]
    if most is None:
        raise typer.BadParameter("missing; --instances auto needs it", param_hint="--max-instances")
    if least >= most:
        raise typer.BadParameter(
            f"{least} must be below --max-instances, which is {most}", param_hint="--min-instances"
        )
    efficiency = 0.5 if given["least_efficiency"] is None else given["least_efficiency"]
    return Wish(
        least,
        most,
        study_options.prices(efficiency, given["price"], given["value_of_time"]),
        given["metric"] or RATE,
        given["enough"] or ENOUGH,
        given["study"] or Path(f"{algorithm}.auto"),
        given["every"] or 2.0,
    )


def decided(
    session: Session,
    algorithm: str,
    wish: Wish,
    dataset: str,
    version: str,
    parameters: Mapping[str, str],
    messages: Mapping[str, Message | None],
    texts: Mapping[str, str],
) -> Decision:
    """Run the study with the options of the job, and return its decision."""
    from training_service.client.cli.auto_instances import decide

    tables = {name: json_format.MessageToDict(message) for name, message in messages.items() if message}
    texts = {"dataset": dataset, "version": version, **texts}
    given = {name: text for name, text in texts.items() if text}
    job = {"parameters": dict(parameters), **given, **tables}
    return decide(session, algorithm, wish, job)
