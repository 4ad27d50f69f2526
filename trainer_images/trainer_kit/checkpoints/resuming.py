"""Finds and restores the checkpoint from which a run resumes."""

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from trainer_kit.checkpoints.exchange import Exchange
from trainer_kit.checkpoints.folder import CheckpointFolder
from trainer_kit.checkpoints.form import Form
from trainer_kit.checkpoints.manifest import Manifest
from trainer_kit.checkpoints.names import Checkpoint, Run
from trainer_kit.errors import DamagedError, StorageError

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each retry if storage fails.

If the last retry fails, the run fails, because a run without its checkpoint would lose all progress.
"""


class Resumed(NamedTuple):
    """The start of a run."""

    run: Run
    checkpoint: Checkpoint | None
    """The restored checkpoint; None if the run starts from the beginning."""
    damaged: frozenset[Checkpoint]


def resume(folder: CheckpointFolder, form: Form[Any], attempt: int, exchange: Exchange) -> Resumed:
    """Start a run of `attempt`, and restore the newest intact checkpoint, if there is one.

    Every process of the group must call this. Raises SupersededError if a later run has started, StorageError
    if storage stays unavailable, and the other errors of `Form.opened`. A damaged checkpoint is skipped.
    But if the damage is found only while the state is restored, DamagedError is raised.
    """
    run = exchange.by_first(lambda: with_retries(lambda: folder.begin(attempt)))
    # List the folder only now: before `begin`, an earlier run may still publish or remove checkpoints.
    published = exchange.by_first(lambda: with_retries(folder.look)).published
    exchange.by_first(lambda: with_retries(lambda: folder.remove_leftovers(run)))
    damaged: set[Checkpoint] = set()
    for checkpoint in published:
        try:
            manifest = exchange.by_first(
                lambda c=checkpoint: with_retries(lambda: folder.manifest_of(c))  # type: ignore[misc]
            )
            _check_together(folder, checkpoint, manifest, exchange)
            restore = form.opened(folder, checkpoint, manifest)
        except DamagedError as error:
            damaged.add(checkpoint)
            if exchange.is_first:
                log.warning("skipping checkpoint %s, which is damaged: %s", checkpoint, error)
        else:
            restore()
            return Resumed(run, checkpoint, frozenset(damaged))
    if damaged and exchange.is_first:
        log.warning("all %d checkpoints are damaged: training starts from the beginning", len(damaged))
    return Resumed(run, None, frozenset(damaged))


def with_retries(action: Callable[[], T]) -> T:
    """Run `action`, and return its result.

    After a StorageError, wait for the next pause in PAUSES, and retry. The error of the last retry is raised.
    """
    for pause in PAUSES:
        try:
            return action()
        except StorageError as error:
            log.warning("retrying in %.0f s: %s", pause, error)
            time.sleep(pause)
    return action()


def _check_together(
    folder: CheckpointFolder, checkpoint: Checkpoint, manifest: Manifest, exchange: Exchange
) -> None:
    """Check every part once: each process checks its share.

    If a part is damaged, all processes raise DamagedError.
    """
    own = list(manifest.parts.items())[exchange.rank :: exchange.size]

    def check() -> None:
        for name, part in own:
            with_retries(lambda n=name, p=part: folder.check_part(checkpoint, n, p))  # type: ignore[misc]

    exchange.agreed(check)
