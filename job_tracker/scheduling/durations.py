"""Expected run times of attempts: quantiles of earlier run times, and the times that callers state.

Each run time is kept under three keys: project, algorithm and size; project and algorithm; algorithm alone.
The expected run time comes from the first of these keys that has enough run times. Memory is bounded: each
key keeps a limited number of its latest run times, and the least recently used keys are dropped.
"""

import json
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from job_tracker.scheduling.model import Expected

KEPT: Final = 200
"""The number of run times that a key keeps."""
MOST_KEYS: Final = 10_000
ENOUGH: Final = 10
"""If a key has fewer run times than this, a wider key (such as the algorithm alone) is used, if there is one:
a few run times say little about the slowest tenth.
"""
LEAST: Final = 3
"""A key with fewer run times than this is not used."""
MOST_SECONDS: Final = 1e10
_MEDIAN: Final = 0.5
_HIGH: Final = 0.9


@dataclass(frozen=True, slots=True)
class Kind:
    """The properties by which attempts are compared: attempts of one kind probably run for similar times."""

    project: str
    algorithm: str
    size: int
    """The number of instances."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys under which run times of this kind are kept, the narrowest first."""
        narrow = [self.project, self.algorithm, self.size]
        return tuple(
            json.dumps(parts, separators=(",", ":")) for parts in (narrow, narrow[:2], [self.algorithm])
        )


class RunTimes:
    """The latest run times by key."""

    def __init__(self, *, kept: int = KEPT, most_keys: int = MOST_KEYS) -> None:
        """Keep at most `kept` run times of a key, and at most `most_keys` keys."""
        self._kept, self._most_keys = kept, most_keys
        self._times: OrderedDict[str, list[float]] = OrderedDict()
        self._quantiles: dict[str, Expected] = {}

    def add(self, kind: Kind, seconds: float) -> tuple[str, ...]:
        """Learn the run time of an attempt of this kind, and return the changed keys.

        An invalid time is ignored.
        """
        if not _is_time(seconds):
            return ()
        for key in kind.keys:
            times = self._times.setdefault(key, [])
            times.append(_rounded(seconds))
            del times[: -self._kept]
            self._changed(key)
        return kind.keys

    def expected(
        self, kind: Kind, *, given: float | None = None, deadline: float | None = None
    ) -> Expected | None:
        """Return the expected run time of an attempt of this kind; None if it is unknown.

        `given` is the time that the caller states, in seconds. It replaces the median, but the high estimate
        may still come from earlier attempts. No estimate is longer than the deadline. If only the deadline is
        known, it is the estimate.
        """
        found = self._learned(kind)
        if given is not None:
            high = max(given, found.high) if found else given
            found = Expected(median=given, high=high, is_learned=found is not None)
        if deadline is None:
            return found
        if found is None:
            return Expected(median=deadline, high=deadline)
        return replace(found, median=min(found.median, deadline), high=min(found.high, deadline))

    def keys(self) -> Iterator[str]:
        """Yield all keys, the least recently used key first."""
        yield from tuple(self._times)

    def text(self, key: str) -> str:
        """Return the run times of a key as JSON, for `restore`. Raises KeyError if the key has none."""
        return json.dumps(self._times[key], separators=(",", ":"))

    def restore(self, key: str, text: str) -> bool:
        """Replace the run times of a key by those in a text.

        If the text is invalid, change nothing and return False.
        """
        times = _parsed(text)
        if times is None:
            return False
        self._times[key] = times[-self._kept :]
        self._changed(key)
        return True

    def __len__(self) -> int:
        return len(self._times)

    def _learned(self, kind: Kind) -> Expected | None:
        found = [key for key in kind.keys if len(self._times.get(key, ())) >= LEAST]
        if not found:
            return None
        # The widest key has the most run times. This key is used even if it has fewer than ENOUGH, since
        # there is no wider key.
        key = next((key for key in found if len(self._times[key]) >= ENOUGH), found[-1])
        self._times.move_to_end(key)
        if key not in self._quantiles:
            self._quantiles[key] = _quantiles(self._times[key])
        return self._quantiles[key]

    def _changed(self, key: str) -> None:
        self._quantiles.pop(key, None)
        self._times.move_to_end(key)
        if len(self._times) > self._most_keys:
            dropped, _ = self._times.popitem(last=False)
            self._quantiles.pop(dropped, None)


def _quantiles(times: Sequence[float]) -> Expected:
    ordered = sorted(times)
    return Expected(median=_quantile(ordered, _MEDIAN), high=_quantile(ordered, _HIGH), is_learned=True)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the time within which the next attempt ends with the probability `share`.

    `ordered` are the earlier run times, sorted. If there are too few of them, return the longest.
    """
    return ordered[min(len(ordered), math.ceil(share * (len(ordered) + 1))) - 1]


def _rounded(seconds: float) -> float:
    """Return the seconds with four significant digits, so that texts are short."""
    return float(f"{seconds:.4g}")


def _parsed(text: str) -> list[float] | None:
    try:
        times = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(times, list) or not times:
        return None
    return [float(each) for each in times] if all(map(_is_time, times)) else None


def _is_time(seconds: object) -> bool:
    return type(seconds) in (int, float) and 0 <= seconds <= MOST_SECONDS  # type: ignore[operator]
