"""Saving beside the training: a step waits only while its state is copied."""

import contextlib
import logging
import time
from concurrent.futures import Future

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import save

from trainer_kit import background
from trainer_kit.checkpoints.exchange import Exchange
from trainer_kit.checkpoints.folder import CheckpointFolder
from trainer_kit.checkpoints.manifest import Manifest, Part
from trainer_kit.checkpoints.names import Checkpoint, Run
from trainer_kit.checkpoints.parts import PartsWriter
from trainer_kit.checkpoints.state import State, StateDict, reason_of
from trainer_kit.errors import StorageError, SupersededError

log = logging.getLogger(__name__)


class Saver:
    """Saves one checkpoint at a time, in a thread of its own; every process must make the same calls.

    A failure is told and counted, and is no failure of the training.
    """

    def __init__(
        self,
        folder: CheckpointFolder,
        run: Run,
        keep: int,
        unusable: frozenset[Checkpoint],
        exchange: Exchange,
    ) -> None:
        self._folder = folder
        self._run = run
        self._keep = keep
        self._unusable = set(unusable)
        self._exchange = exchange
        self._stager = DefaultStager(_staging_options())
        self._pending: Future[None] | None = None
        self._in_doubt: Checkpoint | None = None
        """What rank 0 has begun to publish without learning whether it is published."""
        self.newest: Checkpoint | None = None
        """What this run published last, as far as this process knows; rank 0 always does."""
        self.failures = 0
        """How many saves have failed since the last good one."""
        self.superseded: SupersededError | None = None
        """Set once a later attempt is known to have begun; nothing is saved any more."""

    @property
    def is_busy(self) -> bool:
        """Whether a save is under way."""
        return self._pending is not None and not self._pending.done()

    def start(self, step: int, state: State) -> None:
        """Copies the state and returns; the copy is saved meanwhile. No save may be under way."""
        copy = self._stager.stage(state.gather())
        assert isinstance(copy, dict)
        self._pending = background.start(lambda: self._save(Checkpoint(self._run, step), copy))

    def wait(self) -> None:
        """Waits until nothing is under way."""
        if self._pending is not None:
            self._pending.result()

    def _save(self, checkpoint: Checkpoint, state: StateDict) -> None:
        started = time.monotonic()
        try:
            if not self._exchange.by_first(lambda: self._is_saved(checkpoint)):
                self._write(checkpoint, state)
        except SupersededError as error:
            self.superseded = error
        except StorageError as error:
            self._failed(checkpoint, str(error))
        except CheckpointException as error:
            self._failed(checkpoint, reason_of(error))
        except Exception as error:  # a peer is gone, or a bug: the training has to find out for itself
            self._failed(checkpoint, f"{type(error).__name__}: {error}")
        else:
            self._saved(checkpoint)
            log.info("checkpoint of step %d saved in %.1f s", checkpoint.step, time.monotonic() - started)

    def _write(self, checkpoint: Checkpoint, state: StateDict) -> None:
        writer = PartsWriter(self._folder.filesystem, self._folder.path_of(checkpoint))
        group = self._exchange.process_group
        # One process saves alone, though there may be others: a parameter server's workers.
        save(state, storage_writer=writer, process_group=group, no_dist=group is None)
        parts = self._exchange.all(writer.written)
        self._exchange.by_first(lambda: self._publish(checkpoint, parts))

    def _publish(self, checkpoint: Checkpoint, parts: list[dict[str, Part]]) -> None:
        together = {name: part for of_rank in parts for name, part in of_rank.items()}
        self._in_doubt = checkpoint
        self._folder.publish(checkpoint, Manifest(world_size=len(parts), parts=together))
        # Before the others know: if they are gone by now, the checkpoint is there all the same.
        self._saved(checkpoint)
        try:
            self._folder.tidy(self._run, self._keep, self._unusable)
        except StorageError as error:
            log.warning("old checkpoints could not be removed, which is tried again: %s", error)

    def _is_saved(self, checkpoint: Checkpoint) -> bool:
        """Whether this very step is published already: then its parts must not be written over."""
        self._settle()
        return self.newest == checkpoint

    def _settle(self) -> None:
        """Finds out whether what is in doubt is published."""
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
                    "checkpoint of step %d is saved, but something failed after that: %s",
                    checkpoint.step, reason,
                )  # fmt: skip
                return
        self.failures += 1
        if not self._exchange.is_first:
            return
        log.warning(
            "checkpoint of step %d could not be saved (%d in a row; a restart would go back to %s): %s",
            checkpoint.step, self.failures, self._where_a_restart_begins(), reason,
        )  # fmt: skip
        with contextlib.suppress(StorageError):  # it takes room, which may be what is missing
            self._folder.discard(checkpoint)
            # A late answer of the storage may still publish it, without its parts.
            self._unusable.add(checkpoint)

    def _where_a_restart_begins(self) -> str:
        certain = f"step {self.newest.step}" if self.newest else "where this attempt began"
        if self._in_doubt is None:
            return certain
        return f"step {self._in_doubt.step} if its manifest is in storage, else to {certain}"


def _staging_options() -> StagingOptions:
    # Copies from a GPU are fast into pinned memory only. They are waited for, as the next step changes
    # what is copied.
    gpu = torch.cuda.is_available()
    return StagingOptions(
        use_pinned_memory=gpu, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=gpu
    )
