"""Saves checkpoints in the background: training waits only while its state is copied."""

import contextlib
import logging
import time
from concurrent.futures import Future
from typing import Any

from trainer_kit import background, progress, steps
from trainer_kit.checkpoints.exchange import Exchange
from trainer_kit.checkpoints.folder import CheckpointFolder
from trainer_kit.checkpoints.form import Form
from trainer_kit.checkpoints.manifest import Manifest, Part
from trainer_kit.checkpoints.names import Checkpoint, Run
from trainer_kit.errors import StorageError, SupersededError

log = logging.getLogger(__name__)

ARTIFACT = "checkpoint"
"""The name and kind under which the last checkpoint is reported to the service."""


class Saver:
    """Saves one checkpoint at a time in a background thread. Every process must make the same calls.

    A failure is logged and counted, but does not end the training.
    """

    def __init__(
        self,
        form: Form[Any],
        folder: CheckpointFolder,
        run: Run,
        keep: int,
        unusable: frozenset[Checkpoint],
        exchange: Exchange,
    ) -> None:
        self._form = form
        self._folder = folder
        self._run = run
        self._keep = keep
        self._unusable = set(unusable)
        self._exchange = exchange
        self._pending: Future[None] | None = None
        self._in_doubt: Checkpoint | None = None
        """The checkpoint that rank 0 has tried to publish, if rank 0 does not know the result."""
        self.newest: Checkpoint | None = None
        """The last published checkpoint of this run, as far as this process knows. Rank 0 always knows
        it, except while a later checkpoint is in doubt."""
        self.failures = 0
        """The number of failed saves since the last successful one."""
        self.superseded: SupersededError | None = None
        """Set when a later run has started. Nothing is saved after that."""

    @property
    def is_busy(self) -> bool:
        """Whether a save is in progress."""
        return self._pending is not None and not self._pending.done()

    def start(self, step: int) -> None:
        """Copy the state, then save the copy in the background. No other save may be in progress."""
        with steps.OF_PROCESS.phase(steps.SAVING):
            copy = self._form.copy()
        self._pending = background.start(lambda: self._save(Checkpoint(self._run, step), copy))

    def wait(self) -> None:
        """Wait until no save is in progress."""
        if self._pending is not None:
            with steps.OF_PROCESS.phase(steps.SAVING):
                self._pending.result()

    def _save(self, checkpoint: Checkpoint, copy: Any) -> None:
        started = time.monotonic()
        try:
            if not self._exchange.by_first(lambda: self._is_saved(checkpoint)):
                self._write(checkpoint, copy)
        except SupersededError as error:
            self.superseded = error
        except StorageError as error:
            self._failed(checkpoint, str(error))
        except Exception as error:  # the training itself will notice a lost process or a bug
            self._failed(checkpoint, f"{type(error).__name__}: {error}")
        else:
            self._saved(checkpoint)
            log.info("checkpoint of step %d saved in %.1f s", checkpoint.step, time.monotonic() - started)

    def _write(self, checkpoint: Checkpoint, copy: Any) -> None:
        parts = self._form.write(copy, self._folder, checkpoint)
        self._exchange.by_first(lambda: self._publish(checkpoint, parts))

    def _publish(self, checkpoint: Checkpoint, parts: list[dict[str, Part]]) -> None:
        manifest = Manifest(
            world_size=len(parts),
            parts={name: part for of_rank in parts for name, part in of_rank.items()},
        )
        self._in_doubt = checkpoint
        self._folder.publish(checkpoint, manifest)
        # Record the checkpoint before informing the other processes: it exists even if they are gone.
        self._saved(checkpoint)
        uri = f"{self._folder.uri.rstrip('/')}/{checkpoint}"
        progress.present().artifact(ARTIFACT, uri, kind=ARTIFACT, size=manifest.size)
        try:
            self._folder.tidy(self._run, self._keep, self._unusable)
        except StorageError as error:
            log.warning("could not remove old checkpoints; the next save tries again: %s", error)

    def _is_saved(self, checkpoint: Checkpoint) -> bool:
        """Return whether the checkpoint is already published. If so, its parts must not be overwritten."""
        self._settle()
        return self.newest == checkpoint

    def _settle(self) -> None:
        """Find out whether the checkpoint in doubt is published, and if so, record it as saved."""
        if self._in_doubt is not None and self._folder.is_published(self._in_doubt):
            self._saved(self._in_doubt)
        self._in_doubt = None

    def _saved(self, checkpoint: Checkpoint) -> None:
        self.newest, self.failures, self._in_doubt = checkpoint, 0, None
        self._unusable.discard(checkpoint)

    def _failed(self, checkpoint: Checkpoint, reason: str) -> None:
        if self._exchange.is_first:
            with contextlib.suppress(StorageError):
                self._settle()
            if self.newest == checkpoint:
                log.warning(
                    "the checkpoint of step %d is saved, but a later action failed: %s",
                    checkpoint.step, reason,
                )  # fmt: skip
                return
        self.failures += 1
        if not self._exchange.is_first:
            return
        log.warning(
            "could not save the checkpoint of step %d (%d in a row; a restart would resume from %s): %s",
            checkpoint.step, self.failures, self._restart_point(), reason,
        )  # fmt: skip
        with contextlib.suppress(StorageError):  # free the space of the parts: the disk may be full
            self._folder.discard(checkpoint)
            # Storage may still carry out a delayed write of the manifest, whose parts are now gone.
            self._unusable.add(checkpoint)

    def _restart_point(self) -> str:
        certain = f"step {self.newest.step}" if self.newest else "the start of this attempt"
        if self._in_doubt is None:
            return certain
        return f"step {self._in_doubt.step} if its manifest is in storage, or else {certain}"


class Follower(Saver):
    """The saver of a rank other than 0 if only rank 0 writes: it only takes part in the copy of the state."""

    def start(self, step: int) -> None:  # noqa: ARG002  # see Saver
        """Take part in the copy of the state."""
        self._form.copy()
