"""The parameters of a measurement."""

from dataclasses import dataclass
from typing import Self

from trainer_kit import environment, meeting
from trainer_kit.errors import ParameterError

LARGEST_SIZE = 2**30
MOST_SIZES = 32
DEFAULT_SIZES = "8,4096,65536,1048576,4194304,16777216"


@dataclass(frozen=True)
class Parameters:
    """The sizes, repetitions and time limits of the measurements."""

    sizes: tuple[int, ...]
    """The sizes of messages, in bytes, ascending."""
    repeats: int
    """The maximum number of timed repetitions for each size, after one to warm up. Their median counts."""
    seconds: float
    """The maximum time in seconds for all repetitions of one size.

    A size is left out if a single message would take longer.
    """
    slow_factor: float
    """A link is slow if it is more than this many times slower than usual."""
    timeout: int
    """Seconds for which joining and each exchange wait for other ranks."""

    @classmethod
    def from_environment(cls) -> Self:
        """Read the variables. Raises ParameterError, which names the first invalid one."""
        given = environment.text("SIZES", DEFAULT_SIZES)
        return cls(
            sizes=_sizes(given),
            repeats=environment.integer("REPEATS", 20, at_least=1, at_most=10_000),
            seconds=environment.positive_number("SIZE_SECONDS", 1.0),
            slow_factor=environment.positive_number("SLOW_FACTOR", 2.0, above=1),
            timeout=meeting.patience(),
        )


def _sizes(given: str) -> tuple[int, ...]:
    rule = (
        f"SIZES must be at most {MOST_SIZES} numbers of bytes from 1 to {LARGEST_SIZE}, separated by commas"
    )
    try:
        sizes = sorted({int(part) for part in given.split(",")})
    except ValueError as error:
        raise ParameterError(f"{rule}, but is {given[:100]!r}") from error
    if len(sizes) > MOST_SIZES or not 1 <= sizes[0] <= sizes[-1] <= LARGEST_SIZE:
        raise ParameterError(f"{rule}, but is {given[:100]!r}")
    return tuple(sizes)
