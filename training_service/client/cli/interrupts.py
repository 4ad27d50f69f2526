"""Keeps Ctrl-C recognizable."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """If Ctrl-C in the block has become a RuntimeError, raise its KeyboardInterrupt instead.

    `threading.Condition.wait`, in which gRPC waits, releases a lock and takes it back. If Ctrl-C comes just
    in between, the lock is not held any more where it is released, and this error hides the interrupt.
    """
    try:
        yield
    except RuntimeError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, KeyboardInterrupt):
                raise cause from None
            cause = cause.__context__
        raise
