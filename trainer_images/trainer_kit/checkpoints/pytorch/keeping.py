"""The interface of PyTorch's checkpoints for training code."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.stateful import Stateful
from torch.optim import Optimizer

from trainer_kit import meeting
from trainer_kit.checkpoints.folder import CheckpointFolder
from trainer_kit.checkpoints.keeping import Kept, kept_in_folder
from trainer_kit.checkpoints.manifest import Manifest, Part
from trainer_kit.checkpoints.names import Checkpoint
from trainer_kit.checkpoints.pytorch.exchange import GroupExchange
from trainer_kit.checkpoints.pytorch.packing import Packing
from trainer_kit.checkpoints.pytorch.parts import PartsReader, PartsWriter
from trainer_kit.checkpoints.pytorch.state import State, StateDict, reason_of
from trainer_kit.checkpoints.resuming import with_retries
from trainer_kit.checkpoints.settings import Settings
from trainer_kit.errors import StorageError
from trainer_kit.group import Group

_STORAGE_PATIENCE = timedelta(days=1)
"""The time-out of exchanges between the threads that save. It is long, because large files take long to write
and the training does not wait for these threads."""


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
    a schedule or the position in the data. Build all objects before the block. Start code that uses random
    numbers, such as an iterator over the data, within the block. `before_save` is called in all processes
    after the same step, right before they save. For example, it completes steps that an asynchronous training
    has begun. Every process of the group must call this.

    Without CHECKPOINT_URI, this only counts steps. Raises StorageError if a checkpoint cannot be read,
    DamagedError as in `resuming.resume`, and ParameterError, UnfitError, UntrustedTypeError and
    SupersededError (see `errors`).
    """
    settings = Settings.from_environment()
    if settings.uri is None:
        yield Kept()
        return
    all_optimizers = [optimizers] if isinstance(optimizers, Optimizer) else optimizers
    exchange = GroupExchange(group, timedelta(seconds=meeting.patience()))
    saving = GroupExchange(group, _STORAGE_PATIENCE)

    def form(run: Kept) -> ShardedForm:
        packing = Packing(settings.weights_only)
        state = State(group, model, all_optimizers, {**others, "kept": run}, packing)
        return ShardedForm(state, exchange, saving)

    with kept_in_folder(exchange, form, lambda: saving, before_save) as run:
        yield run


class ShardedForm:
    """Saves and restores a training in which each process saves its shards of the model; see Form."""

    def __init__(self, state: State, exchange: GroupExchange, saving: GroupExchange) -> None:
        self._state = state
        self._exchange = exchange
        self._saving = saving
        self._stager = DefaultStager(_staging_options())

    def copy(self) -> StateDict:
        """Return a copy of the state of this process. Its tensors are copied to the CPU."""
        copy = self._stager.stage(self._state.gather())
        assert isinstance(copy, dict)
        return copy

    def write(
        self, copy: StateDict, folder: CheckpointFolder, checkpoint: Checkpoint
    ) -> list[dict[str, Part]]:
        """Write the parts of this process, and return the parts of all processes."""
        writer = PartsWriter(folder.filesystem, folder.path_of(checkpoint))
        group = self._saving.process_group
        try:
            # A process may save alone although torch.distributed has other processes, such as the workers of
            # a parameter server.
            save(copy, storage_writer=writer, process_group=group, no_dist=group is None)
        except CheckpointException as error:
            raise StorageError(reason_of(error)) from error
        return self._saving.all(writer.written)

    def opened(
        self, folder: CheckpointFolder, checkpoint: Checkpoint, manifest: Manifest
    ) -> Callable[[], None]:
        """Read the list of tensors. Return the function that reads the tensors and restores the state."""
        reader = PartsReader(folder.filesystem, folder.path_of(checkpoint), manifest.parts)
        self._exchange.agreed(lambda: with_retries(reader.look_inside))
        return lambda: self._state.restore(reader, manifest.world_size, self._exchange)


def _staging_options() -> StagingOptions:
    # Copies from a GPU are fast only to pinned memory. The caller waits for them, because the next step
    # changes the state.
    gpu = torch.cuda.is_available()
    return StagingOptions(
        use_pinned_memory=gpu, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=gpu
    )
