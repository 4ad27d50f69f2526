"""Lets a process that saves nothing end with the leader of its group, the process that saves for all."""

from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGTERM

from trainer_kit import termination
from trainer_kit.checkpoints.settings import Settings
from trainer_kit.errors import GroupError
from trainer_kit.termination import Terminated


@contextmanager
def ending_with_leader() -> Iterator[None]:
    """Defer SIGTERM during the block, because the leader needs this process for its last checkpoint.

    After the checkpoint, the leader lets this process end: the block ends, or raises GroupError. If SIGTERM
    has arrived, this function then raises Terminated. Without CHECKPOINT_URI, SIGTERM is not deferred.
    """
    settings = Settings.from_environment()
    if settings.uri is None:
        yield
        return
    with termination.deferred(settings.grace) as is_terminating:
        try:
            yield
        except GroupError:
            if not is_terminating():
                raise
        if is_terminating():
            raise Terminated(SIGTERM)
