"""Ctrl-C stays a KeyboardInterrupt, and other errors stay as they are."""

import threading

import pytest

from training_service.client.cli.interrupts import interrupts_kept


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, RuntimeError])
def test_only_an_interrupt_replaces_the_error_of_a_lock(error: type[BaseException]) -> None:
    expected = KeyboardInterrupt if error is KeyboardInterrupt else RuntimeError
    lock = threading.Condition()

    def wait() -> None:
        with interrupts_kept(), lock:
            lock.release()  # as in `lock.wait`, before it takes the lock back
            raise error

    with pytest.raises(expected):
        wait()


def test_an_error_without_an_interrupt_passes() -> None:
    with pytest.raises(ValueError, match="no"), interrupts_kept():
        raise ValueError("no")
