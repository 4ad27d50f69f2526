"""Checkpoints of any framework: rank 0 saves arrays and plain values, and all processes restore them.

state = {"weights": weights, "losses": []}
with arrays.kept(groups.mpi(world), state) as run:
    for batch in batches[run.steps:]:
        state["weights"] = learn(state["weights"], batch)
        run.step()
"""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, cast

from trainer_kit.checkpoints import durable, random_state, tree
from trainer_kit.checkpoints.exchange import Alone, Exchange
from trainer_kit.checkpoints.folder import CheckpointFolder, storage_errors
from trainer_kit.checkpoints.hashed_file import HashedFile
from trainer_kit.checkpoints.keeping import Kept, kept_in_folder
from trainer_kit.checkpoints.manifest import Manifest, Part
from trainer_kit.checkpoints.names import Checkpoint
from trainer_kit.checkpoints.resuming import with_retries
from trainer_kit.errors import DamagedError, UnfitError

VALUES, ARRAYS = "values.json", "arrays.npy"
"""The parts of a checkpoint."""


@contextmanager
def kept(
    group: Exchange,
    state: dict[str, Any],
    own: dict[str, Any] | None = None,
    *,
    before_save: Callable[[], object] = lambda: None,
) -> Iterator[Kept]:
    """Restore the last checkpoint of this job into `state`, and save new checkpoints during the block.

    Every process of the group must call this. `group` comes from a function of `groups`. `state` has
    everything that changes during training and is the same in all processes: arrays and variables of any
    framework, objects with `state_dict` and `load_state_dict`, and plain values. Training code may replace
    entries of `state`. `own` has the values that differ between the processes; each save sends them to all
    processes, so they should be small. The state of each process's random generators is also kept: of Python,
    of NumPy, and of PyTorch if it has been imported. `before_save` is called in all processes after the same
    step, right before they save.

    A rank that did not exist when the checkpoint was saved keeps its values in `own` and its generators as
    they are.

    Without CHECKPOINT_URI, this only counts steps. Raises StorageError if a checkpoint cannot be read, and
    ParameterError, UnfitError, UntrustedTypeError and SupersededError (see `errors`).
    """
    shown = _messages_printed() if group.is_first else nullcontext()
    kept_run = kept_in_folder(
        group,
        lambda run: ArraysForm(group, run, state, {} if own is None else own),
        lambda: Alone() if group.is_first else None,
        before_save,
    )
    with shown, kept_run as run:
        yield run


class ArraysForm:
    """Saves and restores a state that rank 0 has as a whole; see Form."""

    def __init__(self, group: Exchange, run: Kept, state: dict[str, Any], own: dict[str, Any]) -> None:
        self._group = group
        self._run = run
        self._state = state
        self._own = own

    def copy(self) -> tuple[Any, list[tree.Array]]:
        """Return a copy of the common state and each process's own state; (None, []) in all ranks but 0."""
        of_each = self._group.all({"random": random_state.current(), "own": self._own})
        if not self._group.is_first:
            return None, []
        return tree.encode({"kept": self._run, "state": self._state, "of_each": of_each})

    def write(
        self, copy: tuple[Any, list[tree.Array]], folder: CheckpointFolder, checkpoint: Checkpoint
    ) -> list[dict[str, Part]]:
        """Write the parts. Return them in a list of one, because only rank 0 calls this."""
        values, arrays = copy
        text = json.dumps({"values": values, "arrays": len(arrays)}).encode()
        path = folder.path_of(checkpoint)
        with storage_errors(path):
            folder.filesystem.makedirs(path, exist_ok=True)
        return [
            {
                VALUES: _write(folder, f"{path}/{VALUES}", lambda file: file.write(text)),
                ARRAYS: _write(folder, f"{path}/{ARRAYS}", lambda file: tree.write_arrays(file, arrays)),
            }
        ]

    def opened(
        self, folder: CheckpointFolder, checkpoint: Checkpoint, manifest: Manifest
    ) -> Callable[[], None]:
        """Read the checkpoint in every process. Return the function that restores the state from it."""
        content: dict[str, Any] = {}
        self._group.agreed(lambda: with_retries(lambda: content.update(_read(folder, checkpoint, manifest))))
        return lambda: self._restore(content)

    def _restore(self, content: dict[str, Any]) -> None:
        _put_back(self._state, content["state"])
        self._run.load_state_dict(content["kept"])
        if self._group.rank < len(content["of_each"]):
            of_this = content["of_each"][self._group.rank]
            _put_back(self._own, of_this["own"])
            random_state.restore(of_this["random"])


def _put_back(present: dict[str, Any], saved: dict[str, Any]) -> None:
    """Replace the entries of `present` by the saved ones. Raises UnfitError if their names differ."""
    if saved.keys() != present.keys():
        raise UnfitError(
            f"the checkpoint does not match this training: it has {', '.join(sorted(saved)) or 'nothing'}, "
            f"and the training has {', '.join(sorted(present)) or 'nothing'}"
        )
    for name, value in saved.items():
        present[name] = tree.put_back(present[name], value, name)


def _write(folder: CheckpointFolder, path: str, write: Callable[[Any], object]) -> Part:
    with storage_errors(path), folder.filesystem.open(path, "wb") as file:
        hashed = HashedFile(file)
        write(hashed)
        durable.sync_open(file)
        return hashed.part()


def _read(folder: CheckpointFolder, checkpoint: Checkpoint, manifest: Manifest) -> dict[str, Any]:
    if manifest.parts.keys() != {VALUES, ARRAYS}:
        raise DamagedError(f"the parts in its manifest are not {VALUES} and {ARRAYS}")
    path = folder.path_of(checkpoint)
    with storage_errors(path):
        text = folder.filesystem.cat_file(f"{path}/{VALUES}")
        try:
            document = json.loads(text)
            values, count = document["values"], int(document["arrays"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise DamagedError(f"its values are malformed: {error}") from error
        with folder.filesystem.open(f"{path}/{ARRAYS}", "rb") as file:
            arrays = tree.read_arrays(file, count)
    content = tree.decode(values, arrays)
    if not _is_of_training(content):
        raise DamagedError("its values are malformed: they are not those of a training run")
    return cast(dict[str, Any], content)


def _is_of_training(content: object) -> bool:
    """Return whether the content has the form that this module writes.

    The content is not trusted: all jobs write to one storage, so another job may have written it.
    """
    match content:
        case {"kept": {"steps": int(steps), "values": dict()}, "state": dict(), "of_each": list(of_each)}:
            return steps >= 0 and all(
                isinstance(each, dict)
                and isinstance(each.get("own"), dict)
                and isinstance(each.get("random"), dict)
                for each in of_each
            )
    return False


@contextmanager
def _messages_printed() -> Iterator[None]:
    """Print the kit's INFO messages during the block, unless the program has enabled them itself."""
    log = logging.getLogger("trainer_kit")
    if log.isEnabledFor(logging.INFO):
        yield
        return
    level, handler = log.level, _Printing(logging.INFO)
    handler.addFilter(lambda record: record.levelno < logging.WARNING)  # warnings are shown anyway
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


class _Printing(logging.Handler):
    """Prints each message as a line."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line in one call, so that no other output splits it."""
        sys.stdout.write(f"{self.format(record)}\n")
        sys.stdout.flush()
