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
        self._unusable = unusable
        self._exchange = exchange
        self._stager = DefaultStager(_staging_options())
        self._pending: Future[None] | None = None
        self.newest: Checkpoint | None = None
        """What this run published last."""
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
        writer = PartsWriter(self._folder.filesystem, self._folder.path_of(checkpoint))
        try:
            group = self._exchange.process_group
            # One process saves alone, though there may be others: a parameter server's workers.
            save(state, storage_writer=writer, process_group=group, no_dist=group is None)
            parts = self._exchange.all(writer.written)
            self._exchange.by_first(lambda: self._publish(checkpoint, parts))
        except SupersededError as error:
            self.superseded = error
        except StorageError as error:
            self._failed(checkpoint, str(error))
        except CheckpointException as error:
            self._failed(checkpoint, reason_of(error))
        except Exception as error:  # a peer is gone, or a bug: the training has to find out for itself
            self._failed(checkpoint, f"{type(error).__name__}: {error}")
        else:
            self.newest, self.failures = checkpoint, 0
            log.info("checkpoint of step %d saved in %.1f s", checkpoint.step, time.monotonic() - started)

    def _publish(self, checkpoint: Checkpoint, parts: list[dict[str, Part]]) -> None:
        together = {name: part for of_rank in parts for name, part in of_rank.items()}
        self._folder.publish(checkpoint, Manifest(world_size=len(parts), parts=together))
        try:
            self._folder.tidy(self._run, self._keep, self._unusable)
        except StorageError as error:
            log.warning("old checkpoints could not be removed, which is tried again: %s", error)

    def _failed(self, checkpoint: Checkpoint, reason: str) -> None:
        self.failures += 1
        if not self._exchange.is_first:
            return
        back_to = f"step {self.newest.step}" if self.newest else "where this attempt began"
        log.warning(
            "checkpoint of step %d could not be saved (%d in a row; a restart would go back to %s): %s",
            checkpoint.step, self.failures, back_to, reason,
        )  # fmt: skip
        with contextlib.suppress(StorageError):  # it takes room, which may be what is missing
            self._folder.discard(checkpoint)


def _staging_options() -> StagingOptions:
    # Copies from a GPU are fast into pinned memory only. They are waited for, as the next step changes
    # what is copied.
    gpu = torch.cuda.is_available()
    return StagingOptions(
        use_pinned_memory=gpu, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=gpu
    )
