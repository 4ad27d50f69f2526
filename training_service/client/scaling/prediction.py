"""Predicts the time of a step on more instances from runs on one and two, for data parallel training."""

import math
from dataclasses import dataclass

from training_service.client.scaling.laws import Scaling


@dataclass(frozen=True)
class Network:
    """A measured network, and the bytes and messages that a step sends over it."""

    latency: float
    """The latency of a message, in seconds."""
    bandwidth: float
    """The bytes that an instance sends per second."""
    bytes_a_step: float
    """The bytes of one instance's gradients. A step adds up the gradients of all instances."""
    messages: int = 1
    """The number of all-reduces of a step, one for each bucket of gradients."""

    def __post_init__(self) -> None:
        """Check the values. Raises ValueError, which names the value."""
        for name, least in (("latency", 0), ("bandwidth", 1e-9), ("bytes_a_step", 0), ("messages", 1)):
            value = getattr(self, name)
            if not least <= value < math.inf:
                raise ValueError(f"{name} is {value:g}; it must be at least {least:g} and finite")

    def ring(self, instances: int) -> float:
        """Return the seconds of a step's ring all-reduces (Patarasuk and Yuan, 2009), without computation."""
        n = instances
        rounds = 2 * (n - 1) * self.latency * self.messages
        return rounds + 2 * (n - 1) / n * self.bytes_a_step / self.bandwidth


@dataclass(frozen=True)
class Prediction:
    """A prediction of a step's time: the sum of the work, the part of the ring all-reduces' time that does
    not overlap with passes, and the rest.
    """

    scaling: Scaling
    one: float
    """Seconds of a step on one instance."""
    exposed: float
    """The share of the ring's time that a step waits for, from 0 to 1."""
    rest: float
    """Seconds that are neither divided work nor network: serial work, and waiting for other instances."""
    network: Network | None

    def seconds(self, instances: int) -> float:
        """Return the time of a step on this number of instances."""
        n = instances
        work = self.one / n if self.scaling is Scaling.STRONG else self.one
        sent = self.exposed * self.network.ring(n) if self.network else 0.0
        return work + sent + self.rest * (n - 1) / n

    def speed_up(self, instances: int) -> float:
        """Return the examples per second as a multiple of those on one instance."""
        once = self.one / self.seconds(instances)
        return once if self.scaling is Scaling.STRONG else instances * once


def predict(one: float, two: float, scaling: Scaling, network: Network | None = None) -> Prediction:
    """Return the prediction from the seconds of a step on one instance (`one`) and on two (`two`).

    With perfect scaling, `two` would be half of `one` if the scaling is strong, and equal to `one` if it is
    weak. If `two` is longer, the network explains the excess as far as possible. `rest` explains the
    remainder: it makes a step on n instances longer by (n-1)/n of `rest`. Without a network, `rest` explains
    the whole excess, as in Amdahl's law. Without an excess, `exposed` and `rest` are 0.

    Raises ValueError if a time is not above 0.
    """
    for name, value in (("one instance", one), ("two instances", two)):
        if not 0 < value < math.inf:
            raise ValueError(f"the step on {name} took {value:g} s; it must be above 0")
    more = max(0.0, two - (one / 2 if scaling is Scaling.STRONG else one))
    ring = network.ring(2) if network else 0.0
    exposed = min(1.0, more / ring) if ring else 0.0
    return Prediction(scaling, one, exposed, 2 * (more - exposed * ring), network)
