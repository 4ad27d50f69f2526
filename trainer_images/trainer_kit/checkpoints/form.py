"""Converts the state of a training run into the parts of a checkpoint, and back."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from trainer_kit.checkpoints.folder import CheckpointFolder
from trainer_kit.checkpoints.manifest import Manifest, Part
from trainer_kit.checkpoints.names import Checkpoint

S = TypeVar("S")


class Form(Protocol[S]):
    """A state that can be saved and restored. Every process of the group has one."""

    def copy(self) -> S:
        """Return a copy of the state, so that training can continue while the copy is written.

        Every process calls this after the same step. Raises UntrustedTypeError if the state has values that
        checkpoints cannot contain.
        """
        ...

    def write(self, copy: S, folder: CheckpointFolder, checkpoint: Checkpoint) -> list[dict[str, Part]]:
        """Write the parts. Return the parts of each process by name. This runs in a separate thread."""
        ...

    def opened(
        self, folder: CheckpointFolder, checkpoint: Checkpoint, manifest: Manifest
    ) -> Callable[[], None]:
        """Open the checkpoint, and return a function that restores the state from it.

        Every process calls this method and the returned function. Both may raise DamagedError,
        UntrustedTypeError and StorageError. They raise UnfitError if the saved state does not match the
        current one. Each of these errors is raised in all processes. If the function raises an error, the
        content of the current state is undefined.
        """
        ...
