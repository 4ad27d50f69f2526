"""A sweep as a table, as lines and as a plot."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from training_service._generated.training_service_pb2 import GetTrainingStatusResponse
from training_service.client.cli.render import plots, words
from training_service.client.requests import as_text
from training_service.client.sweeps.history import State, Trial, ranked
from training_service.client.sweeps.settings import Objective, Sweep
from training_service.client.sweeps.space import Axis, Range

_STYLES: dict[State, str] = {
    "proposed": "yellow",
    "submitted": "blue",
    "pruning": "magenta",
    "complete": "green",
    "pruned": "magenta",
    "failed": "bold red",
    "cancelled": "dim",
}


def table(
    sweep: Sweep,
    total: int,
    trials: Sequence[Trial],
    statuses: Mapping[int, GetTrainingStatusResponse],
    max_rows: int | None = None,
) -> RenderableType:
    """Return a table of trials, the best first.

    `statuses` has the statuses of live jobs by the number of the trial. If the table would have more than
    `max_rows` rows, its last rows of ended trials are left out; live trials are always shown.
    """
    rows = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    rows.add_column("TRIAL", justify="right", no_wrap=True)
    rows.add_column("JOB", justify="right", no_wrap=True)
    rows.add_column("STATE", no_wrap=True)
    rows.add_column(Text(words.printable(sweep.objective.metric)), justify="right", no_wrap=True)
    for name in sweep.space:
        rows.add_column(Text(words.printable(name)), justify="right")
    rows.add_column("DETAIL", ratio=1)
    ordered = ranked(trials, highest_first=sweep.objective.direction == "maximize")
    room = None if max_rows is None else max(0, max_rows - sum(trial.is_live for trial in ordered))
    kept = {trial.number for trial in [trial for trial in ordered if not trial.is_live][:room]}
    for trial in ordered:
        if trial.number not in kept and not trial.is_live:
            continue
        status = statuses.get(trial.number)
        rows.add_row(
            str(trial.number),
            "" if trial.job is None else str(trial.job),
            Text(_state(trial, status), style=_STYLES[trial.state]),
            _value(trial, status, sweep.objective),
            *(Text(_short(trial.parameters[name])) for name in sweep.space),
            Text(_detail(trial, status)),
        )
    return Group(Text(tally(sweep, total, trials), style="bold"), rows)


def tally(sweep: Sweep, total: int, trials: Sequence[Trial]) -> str:
    """Return the progress of a sweep, such as "Sweep lr: 7 of 20 trials, 2 submitted, 4 complete, 1
    pruned".
    """
    states = [trial.state for trial in trials]
    counts = [f"{states.count(state)} {state}" for state in _STYLES if state in states]
    title = f"Sweep {words.printable(sweep.name)}: {len(trials)} of {words.count(total, 'trial')}"
    return ", ".join([title, *counts])


def line(trial: Trial) -> str:
    """Return the number, state, objective, job id, parameters and reason of a trial, separated by tabs."""
    return "\t".join(
        (
            str(trial.number),
            trial.state,
            "" if trial.value is None else repr(trial.value),
            "" if trial.job is None else str(trial.job),
            _assignments(trial),
            words.printable(trial.reason),
        )
    )


def job(trial: Trial) -> str:
    """Return the id of a trial's job; "" without one."""
    return "" if trial.job is None else str(trial.job)


def summary(trial: Trial, objective: Objective) -> str:
    """Describe a trial for people, such as "trial 3 (LR=0.1), job 7: complete, accuracy 0.91"."""
    job = "" if trial.job is None else f", job {trial.job}"
    value = "" if trial.value is None else f", {words.printable(objective.metric)} {trial.value:.6g}"
    why = f": {words.printable(trial.reason)}" if trial.reason else ""
    return f"trial {trial.number} ({_assignments(trial)}){job}: {trial.state}{value}{why}"


def save(sweep: Sweep, trials: Sequence[Trial], path: Path) -> None:
    """Plot the objective by trial and by each parameter into one image.

    Raises BadParameter if the image cannot be written.
    """
    valued = [trial for trial in trials if trial.value is not None]
    with plots.picture(path, 1 + len(sweep.space)) as (by_trial, *others):
        _draw_by_trial(by_trial, valued, sweep.objective)
        for axis, (name, searched) in zip(others, sweep.space.items(), strict=True):
            _draw_by_parameter(axis, valued, name, searched)
            axis.set_ylabel(plots.plain(sweep.objective.metric))


def _draw_by_trial(axis: Any, valued: Sequence[Trial], objective: Objective) -> None:
    _scatter(axis, valued, lambda trial: trial.number)
    complete = [trial for trial in valued if trial.state == "complete"]
    better = max if objective.direction == "maximize" else min
    best = [better(t.value for t in complete[: n + 1] if t.value is not None) for n in range(len(complete))]
    axis.step([trial.number for trial in complete], best, where="post", alpha=0.6, label="best so far")
    axis.set_xlabel("trial")
    axis.set_ylabel(plots.plain(objective.metric))
    axis.legend()


def _draw_by_parameter(axis: Any, valued: Sequence[Trial], name: str, searched: Axis) -> None:
    if isinstance(searched, Range):
        _scatter(axis, valued, lambda trial: trial.parameters[name])
        if searched.log:
            axis.set_xscale("log")
    else:
        places = {as_text(choice): place for place, choice in enumerate(searched.choices)}
        _scatter(axis, valued, lambda trial: places[as_text(trial.parameters[name])])
        axis.set_xticks(list(places.values()), [plots.plain(text) for text in places])
    axis.set_xlabel(plots.plain(name))


def _scatter(axis: Any, valued: Sequence[Trial], where: Any) -> None:
    for state, marker in (("complete", "o"), ("pruned", "x")):
        shown = [trial for trial in valued if trial.state == state]
        if shown:
            axis.scatter(
                [where(trial) for trial in shown], [t.value for t in shown], marker=marker, label=state
            )


def _assignments(trial: Trial) -> str:
    return words.assignments({name: as_text(value) for name, value in trial.parameters.items()})


def _short(value: bool | int | float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else words.printable(as_text(value))


def _state(trial: Trial, status: GetTrainingStatusResponse | None) -> str:
    """Return the state of a trial; for a submitted trial, the status of its job if this is known."""
    if trial.state == "submitted" and status is not None:
        return words.status_word(status.status)
    return trial.state


def _value(trial: Trial, status: GetTrainingStatusResponse | None, objective: Objective) -> str:
    if trial.value is None and trial.is_live and status is not None:
        now = status.progress.metrics
        return f"({now[objective.metric]:.4g})" if objective.metric in now else ""
    return "" if trial.value is None else f"{trial.value:.6g}"


def _detail(trial: Trial, status: GetTrainingStatusResponse | None) -> str:
    if trial.is_live and status is not None:
        return words.steps(status.progress)
    return words.printable(trial.reason)
