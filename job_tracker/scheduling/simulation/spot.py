"""Spot machines: their provider takes them away at random times, with a notice."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spot:
    """The random times at which machines are taken away.

    Each machine is replaced at once, so the capacity stays the same. The times are exponentially distributed.
    The draw for an attempt depends only on the seed, the job and the number of the attempt, so all policies
    are compared with the same random draws.
    """

    mean: float
    """The average number of seconds that a machine stays."""
    seed: int = 0

    def first_of(self, job_id: int, attempt: int, machines: int) -> float:
        """Return the seconds after which an attempt with this number of machines loses a machine."""
        draws = random.Random(f"{self.seed}/{job_id}/{attempt}")  # noqa: S311  # no secret
        return draws.expovariate(machines / self.mean)
