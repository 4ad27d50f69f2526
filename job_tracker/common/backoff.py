"""Growing pauses between the retries of an operation."""

import random


class Backoff:
    """The pauses between retries: the first lasts `first` seconds; then the pause doubles each time.

    No pause exceeds `longest` seconds. Each pause is shortened at random by up to a half, so that clients
    that failed together do not retry together.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self._seconds = first

    def next(self) -> float:
        """Return the seconds to wait before the next retry."""
        seconds = min(self._seconds, self._longest)
        self._seconds = 2 * seconds
        return random.uniform(seconds / 2, seconds)  # noqa: S311

    def reset(self) -> None:
        """Begin with the first pause again, after the operation has succeeded."""
        self._seconds = self._first
