"""Recovers the KeyboardInterrupt that a RuntimeError hides."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """If Ctrl-C in the block has become a RuntimeError, raise its KeyboardInterrupt instead.

    `threading.Condition.wait`, in which gRPC waits, releases a lock and acquires it again. If Ctrl-C comes in
    between, the code that releases the lock afterwards raises a RuntimeError, since the lock is not held.
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
