"""Runs, cancels and shows a sweep."""

import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import RenderableType
from rich.text import Text

from training_service.client.cli.exit_codes import ExitCode
from training_service.client.cli.interrupts import interrupts_kept
from training_service.client.cli.output import Form, remark
from training_service.client.cli.render import sweeps, words
from training_service.client.cli.session import Session
from training_service.client.connection import connection
from training_service.client.errors import NotFound, TrainingServiceError
from training_service.client.sweeps import folder as folders
from training_service.client.sweeps.events import Ended, Event, Submitted
from training_service.client.sweeps.folder import Record
from training_service.client.sweeps.history import History, history_of, ranked
from training_service.client.sweeps.methods import total_trials
from training_service.client.sweeps.runner import Runner


@dataclass(frozen=True)
class Limits:
    """The limits of one run of a sweep. If a limit is None, the sweep's own setting applies."""

    at_once: int | None
    max_failures: int | None
    every: float
    """Seconds between two checks of the jobs."""

    @property
    def settings(self) -> dict[str, Any]:
        """The limits that a new sweep stores in its settings."""
        return {"at_once": self.at_once, "max_failures": self.max_failures}


def project_of(session: Session) -> str:
    """Return the project in which the session submits jobs; empty if it is unknown.

    A sweep keeps its project: another caller, or the same caller with other roles, may have another default
    project.
    """
    if session.project:
        return session.project
    try:
        with session.client() as client:
            return client.access.whoami().default_project
    except TrainingServiceError:
        return ""


def run_sweep(session: Session, path: Path, limits: Limits) -> None:
    """Start or resume a sweep, and run it until it ends."""
    with _runner(session, path, limits) as runner, _resume_hint(session, path, runner):
        if runner.history.is_cancelled:
            remark(f"the sweep in {path} is cancelled and cannot be resumed")
            return
        settings = folders.read(path)[0].settings
        total = total_trials(settings)

        def table() -> RenderableType:
            rows = shutil.get_terminal_size().lines - 4
            trials, statuses = list(runner.history.trials), dict(runner.statuses)
            return sweeps.table(settings, total, trials, statuses, max_rows=rows)

        with session.output.drawing(table):
            runner.run()
        if runner.has_too_many_failures:
            remark(f"{words.count(runner.history.failures, 'trial')} failed: the sweep submits no more")
        if runner.history.was_refused:
            remark("the service refused every trial: correct the settings and start the sweep again")


def cancel_sweep(session: Session, path: Path) -> None:
    """Cancel a sweep and its jobs. The cancellation may be repeated."""
    with _runner(session, path, Limits(at_once=None, max_failures=None, every=0)) as runner:
        runner.cancel()
    session.output.note(f"the sweep in {path} is cancelled; the service stops its running jobs")


def show_sweep(session: Session, path: Path, to: Path | None) -> None:
    """Show all trials, the best first. If `to` is given, also write a plot to this file."""
    record, history = read(path)
    settings = record.settings
    trials = ranked(history.trials, highest_first=settings.objective.direction == "maximize")
    session.output.show_all(
        trials,
        sweeps.line,
        lambda shown: sweeps.table(settings, total_trials(settings), list(shown), {}),
        brief=sweeps.job,
    )
    if to is not None:
        sweeps.save(settings, history.trials, to)
        session.output.note(f"wrote {to}")


def show_best(session: Session, path: Path) -> None:
    """Show the best complete trial. Raises NotFound if there is none yet.

    With --quiet, print only the id of its job.
    """
    record, history = read(path)
    objective = record.settings.objective
    complete = [trial for trial in history.trials if trial.state == "complete"]
    if not complete:
        raise NotFound(f"the sweep in {path} has no complete trial yet")
    best = ranked(complete, highest_first=objective.direction == "maximize")[0]
    session.output.show(
        best, sweeps.line, lambda trial: Text(sweeps.summary(trial, objective)), brief=sweeps.job
    )
    if best.job is not None and session.output.form is Form.TERMINAL:
        again = session.command(f"rerun {best.job}")
        session.output.note(f"its model: {session.command(f'fetch {best.job}')}; once more: {again}")


def outcome(path: Path) -> ExitCode:
    """Return the exit code of a sweep: OK if all trials were made and at least one is complete, otherwise
    JOB_FAILED.
    """
    record, history = read(path)
    made_all = len(history.trials) == total_trials(record.settings)
    any_complete = any(trial.state == "complete" for trial in history.trials)
    return ExitCode.OK if made_all and any_complete else ExitCode.JOB_FAILED


def read(path: Path) -> tuple[Record, History]:
    """Read a sweep and its state. Raises NotFound if there is none."""
    record, events = folders.read(path)
    return record, history_of(events)


@contextmanager
def _runner(session: Session, path: Path, limits: Limits) -> Iterator[Runner]:
    with folders.opened(path) as journal:
        if session.connection.address == connection().address:
            session.address = journal.record.address
        if (project := journal.record.project) is not None:
            if session.project and session.project != project:
                remark(f"the sweep in {path} goes on in its project, {project or 'your default one'}")
            session.project = project
        with session.client() as client:
            runner = Runner(
                client,
                journal,
                pause=lambda seconds: time.sleep(limits.every if seconds is None else seconds),
                on_event=lambda event: _print_event(session, runner, journal.record, event),
                at_once=limits.at_once,
                max_failures=limits.max_failures,
            )
            yield runner


def _print_event(session: Session, runner: Runner, record: Record, event: Event) -> None:
    """Print the start or the end of a trial's job, unless a table shows it."""
    if session.output.form is not Form.TERMINAL and isinstance(event, Submitted | Ended):
        session.output.note(sweeps.summary(runner.history.trials[event.trial], record.settings.objective))


@contextmanager
def _resume_hint(session: Session, path: Path, runner: Runner) -> Iterator[None]:
    """If the block is interrupted or fails, say how to resume the sweep. Its jobs continue."""
    folder = shlex.quote(str(path))
    resume = session.command(f"sweep {folder} --resume")
    try:
        with interrupts_kept():
            yield
    except KeyboardInterrupt:
        cancel = session.command(f"sweep {folder} --cancel")
        jobs = words.count(len(runner.history.live), "job")
        remark(f"detached; {jobs} may go on. To resume the sweep: {resume}. To cancel it: {cancel}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except TrainingServiceError as error:
        if runner.history.was_refused:
            error.add_note(
                "No job was submitted. If the settings are wrong, correct them and start the sweep again. "
                f"To resume the sweep: {resume}"
            )
        else:
            error.add_note(f"The submitted jobs go on. To resume the sweep: {resume}")
        raise
