"""`Kept`, the object with which training code saves checkpoints, built from the package's other modules."""

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trainer_kit import termination
from trainer_kit.checkpoints.exchange import Exchange
from trainer_kit.checkpoints.folder import CheckpointFolder
from trainer_kit.checkpoints.form import Form
from trainer_kit.checkpoints.pace import Pace
from trainer_kit.checkpoints.resuming import resume
from trainer_kit.checkpoints.saving import Follower, Saver
from trainer_kit.checkpoints.settings import Settings
from trainer_kit.errors import SupersededError
from trainer_kit.termination import Terminated

log = logging.getLogger(__name__)


class Kept:
    """A run with checkpoints: call `step` after each step."""

    def __init__(self) -> None:
        self.steps = 0
        """The number of steps that the job has done, including those before a restart."""
        self.values: dict[str, Any] = {}
        """Further values to restore after a restart, the same in all processes."""

    def step(self, *, save: bool = False) -> None:  # noqa: ARG002  # here, nothing is saved
        """Count a step. Every process must call this after the optimizer's step.

        This saves a checkpoint if one is due, or if `save` is set, for example at the end of an epoch. Raises
        Terminated after the last checkpoint if the group received SIGTERM, SupersededError if a later attempt
        has started, and UntrustedTypeError if the state contains an object that could not be loaded again.
        """
        self.steps += 1

    def wait(self) -> None:
        """Wait until no save is in progress. Training code does not need this."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this object."""
        return {"steps": self.steps, "values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state from `state_dict`."""
        self.steps, self.values = state["steps"], state["values"]


@contextmanager
def kept_in_folder(
    exchange: Exchange,
    form: Callable[[Kept], Form[Any]],
    saving: Callable[[], Exchange | None],
    before_save: Callable[[], object],
) -> Iterator[Kept]:
    """Restore the last checkpoint of this job, and save checkpoints during the block.

    Every process of the group must call this. `form` gets the Kept that the training code uses, and returns
    the Form of the state. `saving` returns the exchange for the threads that save, or None in a process that
    writes nothing. Without CHECKPOINT_URI, this only counts steps. Raises ParameterError if a setting is
    invalid, and the errors of `resuming.resume`. At the end of the block, raises the errors of `Kept.step`.
    """
    settings = Settings.from_environment()
    if settings.uri is None:
        yield Kept()
        return
    with termination.deferred(settings.grace) as is_terminating:
        run = _KeptInFolder(settings, exchange, form, saving, is_terminating, before_save)
        yield run
        run.finish()


class _KeptInFolder(Kept):
    """A run with a folder for its checkpoints."""

    def __init__(
        self,
        settings: Settings,
        exchange: Exchange,
        form: Callable[[Kept], Form[Any]],
        saving: Callable[[], Exchange | None],
        is_terminating: Callable[[], bool],
        before_save: Callable[[], object],
    ) -> None:
        super().__init__()
        assert settings.uri is not None
        self._exchange = exchange
        self._is_terminating = is_terminating
        self._before_save = before_save
        own_form = form(self)
        folder = CheckpointFolder(settings.uri)
        run, checkpoint, damaged = resume(folder, own_form, settings.attempt, exchange)
        if checkpoint is not None:
            log.info("resuming from step %d, saved by attempt %d", self.steps, checkpoint.run.attempt)
        of_threads = saving()
        saver = Saver if of_threads else Follower
        self._saver = saver(own_form, folder, run, settings.keep, damaged, of_threads or exchange)
        self._pace = Pace(settings, self.steps)

    def step(self, *, save: bool = False) -> None:
        super().step()
        if save:
            self._saver.wait()  # only one checkpoint is saved at a time
        if save or self._pace.wants_look(self.steps):
            self._look(save=save)

    def wait(self) -> None:
        self._saver.wait()

    def finish(self) -> None:
        """Save once more if a checkpoint is due, or if the group received SIGTERM. Wait for all saves.

        If another save is in progress, a checkpoint that is due is left out.

        Raises Terminated and SupersededError, like `step`.
        """
        self._look()
        self._saver.wait()

    def _look(self, *, save: bool = False) -> None:
        """Agree with all processes on the next action (save, end or none), and do it."""
        saver, pace, step = self._saver, self._pace, self.steps
        terminating, superseded, busy, due, slowest = self._exchange.highest(
            self._is_terminating(),
            saver.superseded is not None,
            saver.is_busy,
            save or pace.is_due(step),
            pace.seconds_per_step(step),
        )
        if superseded:
            saver.wait()
            raise saver.superseded or SupersededError("a later attempt of this job has started")
        if terminating:
            self._save_and_end()
        if due and not busy:
            self._before_save()
            saver.start(step)
            pace.saved(step)
        pace.looked(step, slowest)

    def _save_and_end(self) -> None:
        self._saver.wait()
        newest = self._saver.newest
        # Ranks other than 0 may not know the newest checkpoint.
        [is_saved] = self._exchange.highest(newest is not None and newest.step == self.steps)
        if not is_saved:
            self._before_save()
            self._saver.start(self.steps)
            self._saver.wait()
        log.info("ending on SIGTERM after step %d", self.steps)
        raise Terminated(signal.SIGTERM)
