"""The interface of checkpoints for training code."""

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
"""The time-out of exchanges between saving threads: large files take long, but the training does not wait for
them."""


class Kept:
    """A run with checkpoints: call `step` after each step."""

    def __init__(self) -> None:
        self.steps = 0
        """The number of steps that the job has done, including those before a restart."""
        self.values: dict[str, Any] = {}
        """Further values to restore after a restart, the same in all processes."""

    def step(self) -> None:
        """Count a step, after the optimizer's step. Every process must call this.

        This saves a checkpoint if one is due. Raises Terminated after the last checkpoint if the group
        received SIGTERM, SupersededError if a later attempt has started, and UntrustedTypeError if the state
        contains an object that could not be loaded again.
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


class _KeptInFolder(Kept):
    """A run with a folder for its checkpoints."""

    def __init__(
        self,
        settings: Settings,
        group: Group,
        state: Callable[["_KeptInFolder"], State],
        is_terminating: Callable[[], bool],
        before_save: Callable[[], object],
    ) -> None:
        super().__init__()
        assert settings.uri is not None
        self._exchange = Exchange(group, timedelta(seconds=meeting.patience()))
        self._state = state(self)
        self._is_terminating = is_terminating
        self._before_save = before_save
        folder = CheckpointFolder(settings.uri)
        run, checkpoint, damaged = resume(folder, self._state, settings.attempt, self._exchange)
        if checkpoint is not None:
            log.info("resuming from step %d, saved by attempt %d", self.steps, checkpoint.run.attempt)
        self._saver = Saver(folder, run, settings.keep, damaged, Exchange(group, _STORAGE_PATIENCE))
        self._pace = Pace(settings, self.steps)

    def step(self) -> None:
        super().step()
        if self._pace.wants_look(self.steps):
            self._look()

    def wait(self) -> None:
        self._saver.wait()

    def finish(self) -> None:
        """Wait for a save in progress, or save once more if the group received SIGTERM."""
        self._look()
        self._saver.wait()

    def _look(self) -> None:
        """Agree with all processes on the next action, and do it."""
        saver, pace, step = self._saver, self._pace, self.steps
        terminating, superseded, busy, due, slowest = self._exchange.highest(
            self._is_terminating(),
            saver.superseded is not None,
            saver.is_busy,
            pace.is_due(step),
            pace.seconds_per_step(step),
        )
        if superseded:
            saver.wait()
            raise saver.superseded or SupersededError("a later attempt of this job has started")
        if terminating:
            self._save_and_end()
        if due and not busy:
            self._before_save()
            saver.start(step, self._state)
            pace.saved(step)
        pace.looked(step, slowest)

    def _save_and_end(self) -> None:
        self._saver.wait()
        if self._saver.newest is None or self._saver.newest.step != self.steps:
            self._before_save()
            self._saver.start(self.steps, self._state)
            self._saver.wait()
        log.info("ending on SIGTERM after step %d", self.steps)
        raise Terminated(signal.SIGTERM)


@contextmanager
def kept(
    group: Group,
    model: nn.Module,
    optimizers: Optimizer | Sequence[Optimizer],
    *,
    before_save: Callable[[], object] = lambda: None,
    **others: Stateful,
) -> Iterator[Kept]:
    """Restore the last checkpoint of this job, and save checkpoints during the block.

    `model` is the model itself, not the result of `group.wrap`. `others` are further objects with
    `state_dict` and `load_state_dict` that change during training and are the same in all processes, such as
    a schedule or the position in the data. Build all objects before the block, and start code that uses
    random numbers within it. All processes call `before_save` before they save, after the same step, such as
    to complete steps that an asynchronous training has begun. Every process of the group must call this.

    Without CHECKPOINT_URI, this only counts steps. Raises ParameterError, StorageError if a checkpoint cannot
    be read, UnfitError, UntrustedTypeError, and SupersededError.
    """
    settings = Settings.from_environment()
    if settings.uri is None:
        yield Kept()
        return
    optimizers = [optimizers] if isinstance(optimizers, Optimizer) else optimizers
    with termination.deferred(settings.grace) as is_terminating:
        run = _KeptInFolder(
            settings,
            group,
            lambda run: State(
                group, model, optimizers, {**others, "kept": run}, Packing(settings.weights_only)
            ),
            is_terminating,
            before_save,
        )
        yield run
        run.finish()
