"""From which checkpoint a run goes on."""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from trainer_kit.checkpoints.exchange import Exchange
from trainer_kit.checkpoints.folder import CheckpointFolder
from trainer_kit.checkpoints.manifest import Manifest
from trainer_kit.checkpoints.names import Checkpoint, Run
from trainer_kit.checkpoints.parts import PartsReader
from trainer_kit.checkpoints.state import State
from trainer_kit.errors import DamagedError, StorageError

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries to read, before a run gives up: to begin anew would lose all that was trained."""


class Resumed(NamedTuple):
    """How a run began."""

    run: Run
    checkpoint: Checkpoint | None
    """What it goes on from; None: from nothing."""
    damaged: frozenset[Checkpoint]


def resume(folder: CheckpointFolder, state: State, attempt: int, exchange: Exchange) -> Resumed:
    """Begins a run of `attempt`: puts the newest whole checkpoint back into `state`, if there is one.

    Every process of the group must call it. Raises SupersededError when a later attempt has begun,
    StorageError when storage stays away, UnfitError and UntrustedTypeError.
    """
    run = exchange.by_first(lambda: patiently(lambda: folder.begin(attempt)))
    # Only now: who began before may have published until then, and removes nothing any more.
    published = exchange.by_first(lambda: patiently(folder.look)).published
    exchange.by_first(lambda: patiently(lambda: folder.remove_leftovers(run)))
    damaged: set[Checkpoint] = set()
    for checkpoint in published:
        try:
            manifest = exchange.by_first(lambda c=checkpoint: patiently(lambda: folder.manifest_of(c)))  # type: ignore[misc]
            _check_together(folder, checkpoint, manifest, state, exchange)
            reader = PartsReader(folder.filesystem, folder.path_of(checkpoint), manifest.parts)
            exchange.agreed(lambda r=reader: patiently(r.look_inside))  # type: ignore[misc]
        except DamagedError as error:
            damaged.add(checkpoint)
            if exchange.is_first:
                log.warning("checkpoint %s is damaged and is passed over: %s", checkpoint, error)
        else:
            state.restore(reader, manifest.world_size, exchange)
            return Resumed(run, checkpoint, frozenset(damaged))
    if damaged and exchange.is_first:
        log.warning("none of %d checkpoints is whole: training begins anew", len(damaged))
    return Resumed(run, None, frozenset(damaged))


def patiently(action: Callable[[], T]) -> T:
    """Does `action`, and again after a pause when storage fails, as long as there are pauses left."""
    for pause in PAUSES:
        try:
            return action()
        except StorageError as error:
            log.warning("trying again in %.0f s: %s", pause, error)
            time.sleep(pause)
    return action()


def _check_together(
    folder: CheckpointFolder, checkpoint: Checkpoint, manifest: Manifest, state: State, exchange: Exchange
) -> None:
    """Reads every part once, shared out to the processes; raises DamagedError in all of them."""
    own = list(manifest.parts.items())[state.group.rank :: state.group.size]

    def check() -> None:
        for name, part in own:
            patiently(lambda n=name, p=part: folder.check_part(checkpoint, n, p))  # type: ignore[misc]

    exchange.agreed(check)
