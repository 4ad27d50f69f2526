"""Checkpoints as training code sees them."""

import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from torch import nn
from torch.distributed.checkpoint.stateful import Stateful
from torch.optim import Optimizer

from trainer_kit import meeting, termination
from trainer_kit.checkpoints.exchange import Exchange
from trainer_kit.checkpoints.folder import CheckpointFolder
from trainer_kit.checkpoints.pace import Pace
from trainer_kit.checkpoints.packing import Packing
from trainer_kit.checkpoints.resuming import resume
from trainer_kit.checkpoints.saving import Saver
from trainer_kit.checkpoints.settings import Settings
from trainer_kit.checkpoints.state import State
from trainer_kit.errors import SupersededError
from trainer_kit.group import Group
from trainer_kit.termination import Terminated

log = logging.getLogger(__name__)

_STORAGE_PATIENCE = timedelta(days=1)
"""For exchanges between threads that save: large files take their time, and nobody waits for them."""


class Kept:
    """A run whose state is kept: count each step, and the rest happens by itself."""

    def __init__(self) -> None:
        self.steps = 0
        """How many steps the job has done, those before a restart included."""
        self.values: dict[str, Any] = {}
        """Whatever else the training code wants to have back after a restart; the same in all processes."""

    def step(self) -> None:
        """Says that a step is done; every process must, and its optimizer's step must be over.

        Saves when that is due. Raises Terminated once the group was told to end and has saved,
        SupersededError when a later attempt has begun, and UntrustedTypeError when there is something
        to save that could not be loaded again.
        """
        self.steps += 1

    def wait(self) -> None:
        """Waits until no save is under way; training has no need to."""

    def state_dict(self) -> dict[str, Any]:
        """What is kept of this object itself."""
        return {"steps": self.steps, "values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave."""
        self.steps, self.values = state["steps"], state["values"]


class _KeptInFolder(Kept):
    """A run that has a folder to be kept in."""

    def __init__(
        self,
        settings: Settings,
        group: Group,
        state: Callable[["_KeptInFolder"], State],
        was_told_to_end: Callable[[], bool],
    ) -> None:
        super().__init__()
        assert settings.uri is not None
        self._exchange = Exchange(group, timedelta(seconds=meeting.patience()))
        self._state = state(self)
        self._was_told_to_end = was_told_to_end
        folder = CheckpointFolder(settings.uri)
        run, checkpoint, damaged = resume(folder, self._state, settings.attempt, self._exchange)
        if checkpoint is not None:
            log.info("going on from step %d, saved by attempt %d", self.steps, checkpoint.run.attempt)
        self._saver = Saver(folder, run, settings.keep, damaged, Exchange(group, _STORAGE_PATIENCE))
        self._pace = Pace(settings, self.steps)

    def step(self) -> None:
        super().step()
        if self._pace.wants_look(self.steps):
            self._look()

    def wait(self) -> None:
        self._saver.wait()

    def finish(self) -> None:
        """Ends well: waits for what is under way, or saves once more if the group was told to end."""
        self._look()
        self._saver.wait()

    def _look(self) -> None:
        """Finds out what all processes together have to do now, and does it."""
        saver, pace, step = self._saver, self._pace, self.steps
        told, lost, busy, due, slowest = self._exchange.highest(
            self._was_told_to_end(),
            saver.superseded is not None,
            saver.is_busy,
            pace.is_due(step),
            pace.seconds_per_step(step),
        )
        if lost:
            saver.wait()
            raise saver.superseded or SupersededError("a later attempt at this job has begun")
        if told:
            self._save_and_end()
        if due and not busy:
            saver.start(step, self._state)
            pace.saved(step)
        pace.looked(step, slowest)

    def _save_and_end(self) -> None:
        self._saver.wait()
        if self._saver.newest is None or self._saver.newest.step != self.steps:
            self._saver.start(self.steps, self._state)
            self._saver.wait()
        log.info("told to end, after step %d", self.steps)
        raise Terminated(signal.SIGTERM)


@contextmanager
def kept(
    group: Group, model: nn.Module, optimizers: Optimizer | Sequence[Optimizer], **others: Stateful
) -> Iterator[Kept]:
    """Puts back what an earlier attempt at this job saved, and saves what the block comes to.

    `model` is the model itself, not what `group.wrap` made of it. `others` are what else changes while
    training and is the same in all processes, each with `state_dict` and `load_state_dict`: a schedule,
    the place in the data. Everything must be built before, and what uses random numbers be started
    within the block. Every process of the group must do this.

    Without CHECKPOINT_URI steps are counted, and nothing else happens. Raises ParameterError,
    StorageError when what is there cannot be read, UnfitError, UntrustedTypeError, and SupersededError.
    """
    settings = Settings.from_environment()
    if settings.uri is None:
        yield Kept()
        return
    optimizers = [optimizers] if isinstance(optimizers, Optimizer) else optimizers
    with termination.deferred(settings.grace) as was_told_to_end:
        run = _KeptInFolder(
            settings,
            group,
            lambda run: State(
                group, model, optimizers, {**others, "kept": run}, Packing(settings.weights_only)
            ),
            was_told_to_end,
        )
        yield run
        run.finish()
