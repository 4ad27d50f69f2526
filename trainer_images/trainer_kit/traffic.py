"""The bytes that this process sends to average gradients, for the series `gradient_sent_bytes`."""


class Sent:
    """Counts bytes between two reported steps.

    The thread that trains reads the count. A backward pass, for which that thread waits, may add to the count
    in another thread.
    """

    def __init__(self) -> None:
        self._bytes = 0.0
        self._step = 0

    def add(self, count: float) -> None:
        """Add bytes to the count."""
        self._bytes += count

    def of_steps(self, step: int) -> float | None:
        """Return the bytes of a step, on average since the last call; None if none were sent."""
        # After a restore, or in another training run of this process, the difference of the two numbers is
        # not the number of steps since the last call.
        steps = step - self._step if step - self._step > 0 and self._step else 1
        sent, self._bytes, self._step = self._bytes, 0.0, step
        return sent / steps or None


OF_PROCESS = Sent()
"""The bytes of this process."""
