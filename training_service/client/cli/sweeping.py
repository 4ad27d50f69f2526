"""A sweep under the eyes of people: run, cancelled, shown."""

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

from training_service.client.channel import address_or_default
from training_service.client.cli.exit_codes import ExitCode
from training_service.client.cli.output import Form, remark
from training_service.client.cli.render import sweeps, words
from training_service.client.cli.session import Session
from training_service.client.errors import TrainingServiceError
from training_service.client.sweeps import folder as folders
from training_service.client.sweeps.events import Ended, Event, Submitted
from training_service.client.sweeps.folder import Record
from training_service.client.sweeps.history import History, history_of, ranked
from training_service.client.sweeps.methods import trials_in_all
from training_service.client.sweeps.runner import Runner


@dataclass(frozen=True)
class Limits:
    """How a sweep is run, which may be another way each time; None is as its settings say."""

    at_once: int | None
    max_failures: int | None
    every: float
    """Seconds between two looks at the jobs."""

    @property
    def settings(self) -> dict[str, Any]:
        """Those that a new sweep keeps."""
        return {"at_once": self.at_once, "max_failures": self.max_failures}


def run_sweep(session: Session, path: Path, limits: Limits) -> None:
    """Begins or goes on; returns when there is nothing more to do."""
    with _runner(session, path, limits) as runner, _jobs_go_on(session, path, runner):
        if runner.history.is_cancelled:
            remark(f"the sweep in {path} was cancelled; it does not go on")
            return
        settings = folders.read(path)[0].settings
        in_all = trials_in_all(settings)

        def picture() -> RenderableType:
            rows = shutil.get_terminal_size().lines - 4
            trials, statuses = list(runner.history.trials), dict(runner.statuses)
            return sweeps.table(settings, in_all, trials, statuses, most=rows)

        with session.output.drawing(picture):
            runner.run()
        if runner.has_too_many_failures:
            remark(f"{words.count(runner.history.failures, 'trial')} failed: no more were submitted")
        if runner.history.came_to_nothing:
            remark("the service has refused every trial: mend the settings, and begin the sweep again")


def cancel_sweep(session: Session, path: Path) -> None:
    """Ends a sweep and its jobs; it may be repeated."""
    with _runner(session, path, Limits(at_once=None, max_failures=None, every=0)) as runner:
        runner.cancel()
    remark(f"the sweep in {path} is cancelled; processes that ran are being stopped")


def show_sweep(session: Session, path: Path, to: Path | None) -> None:
    """All trials, the best first, and the picture if one is wanted."""
    record, history = _standing(path)
    settings = record.settings
    trials = ranked(history.trials, highest_first=settings.objective.direction == "maximize")
    session.output.show_all(
        trials, sweeps.line, lambda shown: sweeps.table(settings, trials_in_all(settings), list(shown), {})
    )
    if to is not None:
        sweeps.save(settings, history.trials, to)
        remark(f"wrote {to}")


def outcome(path: Path) -> ExitCode:
    """A sweep is a success if it has come to its end, and one of its trials to a value."""
    record, history = _standing(path)
    made_all = len(history.trials) == trials_in_all(record.settings)
    found = any(trial.state == "complete" for trial in history.trials)
    return ExitCode.OK if made_all and found else ExitCode.JOB_FAILED


def _standing(path: Path) -> tuple[Record, History]:
    record, events = folders.read(path)
    return record, history_of(events)


@contextmanager
def _runner(session: Session, path: Path, limits: Limits) -> Iterator[Runner]:
    with folders.opened(path) as journal:
        if session.address == address_or_default(None):
            session.address = journal.record.address
        with session.client() as client:
            runner = Runner(
                client,
                journal,
                pause=lambda seconds: time.sleep(limits.every if seconds is None else seconds),
                heard=lambda event: _tell(session, runner, journal.record, event),
                at_once=limits.at_once,
                max_failures=limits.max_failures,
            )
            yield runner


def _tell(session: Session, runner: Runner, record: Record, event: Event) -> None:
    """Where there is no table, people and logs get a line for what matters."""
    if session.output.form is not Form.TERMINAL and isinstance(event, Submitted | Ended):
        remark(sweeps.told(runner.history.trials[event.trial], record.settings.objective))


@contextmanager
def _jobs_go_on(session: Session, path: Path, runner: Runner) -> Iterator[None]:
    """Within it, whatever ends trainctl leaves the jobs, and says how to come back."""
    folder = shlex.quote(str(path))
    back = session.command(f"sweep {folder} --resume")
    try:
        yield
    except KeyboardInterrupt:
        end = session.command(f"sweep {folder} --cancel")
        jobs = words.count(len(runner.history.live), "job")
        remark(f"detached; {jobs} may go on. Go on with the sweep: {back}. End it: {end}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except TrainingServiceError as error:
        if runner.history.came_to_nothing:
            error.add_note(
                "Nothing was submitted. If the settings are wrong, mend them and begin the sweep again. "
                f"Go on with the sweep: {back}"
            )
        else:
            error.add_note(f"What was submitted goes on. Go on with the sweep: {back}")
        raise
