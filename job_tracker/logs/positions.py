"""Positions of readers in logs. A position stays valid when a log moves from its machine to storage."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from job_tracker.common.printable import quoted
from job_tracker.domain.errors import InvalidField
from job_tracker.logs.records import BEGINNING, is_time

_DIGITS = re.compile(r"[0-9]{1,10}")
_MOST = 2**31
"""A number above every attempt and rank, which are int32 in messages of the API."""


@dataclass(frozen=True, slots=True)
class Position:
    """An attempt, and for each rank the time of the last record that was read."""

    attempt: int
    read: Mapping[int, bytes] = field(default_factory=dict)

    def after(self, rank: int) -> bytes:
        """Return the time of the rank's last record that was read; BEGINNING if none was read."""
        return self.read.get(rank, BEGINNING)

    def moved(self, rank: int, time: bytes) -> "Position":
        """Return the position after the rank's record with this time was read."""
        return replace(self, read={**self.read, rank: time})

    def __str__(self) -> str:
        """Return the text that clients send back."""
        return " ".join([str(self.attempt), *(f"{rank}={time.decode()}" for rank, time in self.read.items())])

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Parse the text of a position (see __str__). Raises InvalidField if the text is malformed."""
        attempt, *times = text.split(" ")
        pairs = [time.partition("=") for time in times]
        if not (
            _is_number(attempt)
            and all(_is_number(rank) and is_time(time.encode()) for rank, _, time in pairs)
        ):
            raise InvalidField(
                "position", f"{quoted(text)} is not allowed; send the position of an earlier response"
            )
        return cls(int(attempt), {int(rank): time.encode() for rank, _, time in pairs})


def _is_number(text: str) -> bool:
    # Check the number of digits first: int() accepts at most 4,300, and its time is quadratic.
    return _DIGITS.fullmatch(text) is not None and int(text) < _MOST
