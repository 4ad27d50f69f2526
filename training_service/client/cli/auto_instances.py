"""`trainctl submit --instances auto`: a short study decides once how many instances a job gets.

The study is a sweep in a folder, so it can be killed and resumed like any sweep (docs/sweeps.md). After a
kill, the same command continues the study. It does not queue a second job, because the job's request key is
made from the study's id.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from training_service.client.cli import sweep_folders, sweeping
from training_service.client.cli.render import scaling, words
from training_service.client.cli.session import Session
from training_service.client.errors import FailedPrecondition, NotAllowed, NotFound, ServerError
from training_service.client.scaling.study import Series, series_of, settings_of
from training_service.client.scaling.worth import Prices, numbers_between, of_measured
from training_service.client.sweeps.settings import checked

LEAST_PARAMETER = "MIN_INSTANCES"
"""The parameter of elastic algorithms for the smallest number of instances with which a group continues."""


@dataclass(frozen=True)
class Wish:
    """The numbers of instances that a study may try, and the rule by which the study decides."""

    least: int
    most: int
    prices: Prices
    metric: str
    enough: int
    """Each job of the study is cancelled after this many values of the metric."""
    folder: Path
    every: float


@dataclass(frozen=True)
class Decision:
    """The choice of a study: the number of instances, the parameters and the request key of the job."""

    instances: int
    parameters: Mapping[str, str]
    """The parameters of the job. For an elastic algorithm, they include LEAST_PARAMETER."""
    request_key: str


def decide(session: Session, algorithm: str, wish: Wish, job: Mapping[str, Any]) -> Decision:
    """Run the study or continue it, print its findings, and return the decision for the job.

    `job` has the settings that the study's trials share with the job. Raises BadParameter if the folder has
    another study, and FailedPrecondition if the study is not complete or no trial has a result.
    """
    numbers = numbers_between(wish.least, wish.most)
    settings = settings_of(algorithm, numbers, {**job, "enough": wish.enough}, wish.metric)
    _open(session, wish, settings)
    sweeping.run_sweep(session, wish.folder, sweeping.Limits(1, None, wish.every))
    record, history = sweeping.read(wish.folder)
    if history.is_cancelled or history.live or len(history.trials) < len(numbers):
        raise FailedPrecondition(
            f"the study in {wish.folder} is not complete, so no job is submitted: give --instances a number, "
            "or another folder with --study"
        )
    [series] = series_of(record.settings, history.trials)
    shown = scaling.Shown(series, wish.prices)
    for line in scaling.line(shown).splitlines():
        session.output.note(line.strip("\t").replace("\t", "  "))
    found = _found(series, wish)
    session.output.note(
        f"{words.count(found, 'instance')}: the choice of the study in {wish.folder} among "
        f"{', '.join(map(str, series.rates))}"
    )
    parameters = dict(job["parameters"])
    if _is_elastic(session, algorithm):
        parameters.setdefault(LEAST_PARAMETER, str(min(wish.least, found)))
    return Decision(found, parameters, f"auto-{record.id}")


def _is_elastic(session: Session, algorithm: str) -> bool:
    try:
        with session.client() as client:
            return any(each.is_elastic for each in client.catalog.algorithms(session.project, algorithm))
    except (NotFound, NotAllowed, ServerError):
        return False


def _found(series: Series, wish: Wish) -> int:
    if not series.rates:
        raise FailedPrecondition(
            f"no job of the study in {wish.folder} reported {wish.metric}, so no job is submitted: give "
            "--instances a number, or name the metric with the examples per second with --metric"
        )
    return of_measured(series.rates, series.rates.get(1) or series.rate(1), wish.prices)


def _open(session: Session, wish: Wish, settings: Mapping[str, Any]) -> None:
    """Create the folder of the study, unless the folder has the same study already.

    A study in the folder is replaced if the service has refused at least one of its trials, and if it is
    certain that none of its trials got a job.
    Raises BadParameter if the folder has another study that is not replaced.
    """
    try:
        record, history = sweeping.read(wish.folder)
    except NotFound:
        record, history = None, None
    if record is None or (history is not None and history.was_refused):
        sweep_folders.create(
            *(None, wish.folder, settings, session.connection.address), lambda: sweeping.project_of(session)
        )
    elif record.settings != checked(sweep_folders.without_empty(settings)):
        raise typer.BadParameter(
            f"'{wish.folder}' has the study of another job or of other bounds; give another folder",
            param_hint="--study",
        )
