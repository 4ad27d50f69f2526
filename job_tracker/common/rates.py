"""Limits the rate of calls for each key, with token buckets."""

import time
from collections.abc import Callable, Hashable
from typing import Final

_MOST_KEYS: Final = 8192
_ROUNDING: Final = 1e-9


class Rate:
    """Allows each key `burst` calls at once, and `per_second` calls a second over time.

    The time of a `take` does not depend on the number of keys. Keys whose buckets are full are forgotten,
    since a new bucket is full, too. If more than about 8,000 keys have buckets that are not full, the least
    recently used keys are forgotten, too. This bounds the memory, but lets these keys begin again with full
    buckets.
    """

    def __init__(
        self,
        per_second: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        most_keys: int = _MOST_KEYS,
    ) -> None:
        """`per_second` and `burst` are above 0. At most twice `most_keys` keys are remembered."""
        self.per_second = per_second
        self.burst = burst
        self._interval = 1 / per_second
        self._slack = (burst - 1) * self._interval + _ROUNDING
        self._clock = clock
        self._most_keys = most_keys
        # The times at which the bucket of each key will be full. A key moves to `_young` when it is used.
        self._young: dict[Hashable, float] = {}
        self._old: dict[Hashable, float] = {}
        self._ages_at = clock() + burst * self._interval

    def take(self, key: Hashable) -> float:
        """If a call of the key is allowed, count it and return 0.

        Otherwise, return the seconds until the next call is allowed.
        """
        now = self._clock()
        if now >= self._ages_at or len(self._young) >= self._most_keys:
            self._age(now)
        full_at = self._young.get(key)
        if full_at is None:
            full_at = self._old.get(key, now)
        wait = full_at - now - self._slack
        if wait > 0:
            return wait
        self._young[key] = (full_at if full_at > now else now) + self._interval
        return 0.0

    def give_back(self, key: Hashable) -> None:
        """Undo the key's last `take`, which must have allowed a call.

        If `_age` has run since then, the call stays counted.
        """
        if key in self._young:
            self._young[key] -= self._interval

    @property
    def remembered(self) -> int:
        """Return the number of remembered keys. Some keys may count twice."""
        return len(self._young) + len(self._old)

    def _age(self, now: float) -> None:
        """Forget the keys that have not been used since the last call of this method."""
        self._old, self._young = self._young, {}
        self._ages_at = now + self.burst * self._interval
