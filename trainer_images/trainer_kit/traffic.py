"""The bytes that this process sends to average gradients, for the series `gradient_sent_bytes`."""


class Sent:
    """Counts bytes between two reported steps.

    The thread that trains reads the count. During a backward pass, another thread may add to it. No lock is
    needed, since the thread that trains waits for the backward pass.
    """

    def __init__(self) -> None:
        self._bytes = 0.0
        self._step = 0

    def add(self, count: float) -> None:
        """Add bytes to the count."""
        self._bytes += count

    def of_steps(self, step: int) -> float | None:
        """Return the bytes per step since the last call, on average; None if none were sent."""
        # After a restore, or in another training run of this process, the difference of the step numbers is
        # not the number of steps since the last call. In these cases, count one step.
        steps = step - self._step if step - self._step > 0 and self._step else 1
        sent, self._bytes, self._step = self._bytes, 0.0, step
        return sent / steps or None


OF_PROCESS = Sent()
"""The bytes of this process."""
