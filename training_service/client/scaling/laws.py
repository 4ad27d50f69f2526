"""Fits a law to the measured time of a step on several numbers of instances.

With strong scaling, the batch of all instances is fixed; with weak scaling, the batch of each instance is
fixed. The time of a step on n instances is a sum of terms with coefficients that are at least 0:

* strong: T(n) = work/n + rest (n-1)/n + latency (n-1)
* weak:   T(n) = work + rest (n-1)/n + latency (n-1)

`rest` is the time that more instances do not divide. It has two parts. One is the serial part s of Amdahl's
law (1967), since s + p/n = (s+p)/n + s (n-1)/n. The other is the bandwidth part of a ring all-reduce, in
which each instance sends 2(n-1)/n times the bytes of the gradients (Patarasuk and Yuan, 2009). **The times of
steps alone cannot tell these two apart**: both have the same shape. A measured network can tell them apart
(see `prediction`). `latency` is the latency of two rounds of the ring, which has 2(n-1) rounds. With weak
scaling, `gustafson` is the law of Gustafson (1988): in the same time, n instances compute s + (1-s) n times
as many examples as one instance.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from training_service.client.scaling.least_squares import nonnegative

Term = Callable[[float], float]

TOLERANCE = 0.03
"""A law explains a point if its difference from the point is at most this share of the point, or at most
two standard errors of the point.
"""

CONFIDENCE = 1.96
"""The half width of a 95 % interval in standard errors, if there are many points."""

_STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23}
"""The same half width for few points, by Student's t-distribution.

The keys are degrees of freedom: the number of points minus the number of coefficients.
"""


class Scaling(StrEnum):
    """The amount of work that stays the same when instances are added."""

    STRONG = "strong"
    """The batch of all instances together stays the same."""
    WEAK = "weak"
    """The batch of each instance stays the same."""


@dataclass(frozen=True)
class Point:
    """The measured time of a step on a number of instances."""

    instances: int
    seconds: float
    """The time of a step."""
    error: float = 0.0
    """The standard error of the time in seconds, or 0 if it is not known."""

    def __post_init__(self) -> None:
        """Check the values. Raises ValueError if one is out of range."""
        if self.instances < 1:
            raise ValueError(f"instances is {self.instances}; it must be at least 1")
        if not 0 < self.seconds < math.inf:
            raise ValueError(
                f"the step on {self.instances} instances took {self.seconds:g} s; it must be above 0"
            )
        if not 0 <= self.error < math.inf:
            raise ValueError(
                f"the error on {self.instances} instances is {self.error:g}; it must not be below 0"
            )


def _whole(_n: float) -> float:
    return 1.0


def _divided(n: float) -> float:
    return 1 / n


def _rest(n: float) -> float:
    return (n - 1) / n


def _latency(n: float) -> float:
    return n - 1


@dataclass(frozen=True)
class _Form:
    name: str
    names: tuple[str, ...]
    terms: tuple[Term, ...]
    is_rate: bool = False
    """Whether the terms add up to a rate instead of a time. The rate is in batches of one instance, per
    second."""


_FORMS = {
    Scaling.STRONG: (
        _Form("linear", ("work",), (_divided,)),
        _Form("amdahl", ("work", "rest"), (_divided, _rest)),
        _Form("linear with latency", ("work", "latency"), (_divided, _latency)),
        _Form("amdahl with latency", ("work", "rest", "latency"), (_divided, _rest, _latency)),
    ),
    Scaling.WEAK: (
        _Form("linear", ("work",), (_whole,)),
        _Form("bandwidth", ("work", "rest"), (_whole, _rest)),
        _Form("latency", ("work", "latency"), (_whole, _latency)),
        _Form("gustafson", ("serial", "parallel"), (_whole, lambda n: n), is_rate=True),
        _Form("bandwidth and latency", ("work", "rest", "latency"), (_whole, _rest, _latency)),
    ),
}
"""The laws to choose from, the simplest first."""


@dataclass(frozen=True)
class Law:
    """A fitted law."""

    name: str
    scaling: Scaling
    coefficients: dict[str, float]
    """The coefficients by name, in seconds. For `gustafson`: in batches of one instance, per second."""
    fitted_on: tuple[int, ...]
    """The numbers of instances of the points on which the law was fitted."""
    worst: float
    """The largest difference between the law and a point, as a share of the point."""
    covariance: tuple[tuple[float, ...], ...] | None = field(repr=False, default=None)
    """The covariance of the coefficients; None if it cannot be estimated from the points."""
    width: float = CONFIDENCE
    """The distance from the law to each bound of a 95 % interval, in standard errors."""

    def seconds(self, instances: float) -> float:
        """Return the time of a step on this number of instances."""
        value = self._value(instances)
        return instances / value if self._form.is_rate else value

    def interval(self, instances: float) -> tuple[float, float] | None:
        """Return a lower and an upper bound of the step's time. If the law is right, the time is between the
        bounds in 95 of 100 cases.

        None: the law's error is unknown, because there are only as many points as coefficients, and not all
        points have standard errors.
        """
        if self.covariance is None:
            return None
        terms = [term(instances) for term in self._form.terms]
        lines = zip(terms, self.covariance, strict=True)
        variance = sum(a * sum(b * c for b, c in zip(terms, line, strict=True)) for a, line in lines)
        value = self._value(instances)
        half = self.width * math.sqrt(max(0.0, variance))
        low, high = max(0.0, value - half), value + half
        if self._form.is_rate:
            return instances / high, instances / low if low else math.inf
        return low, high

    def speed_up(self, instances: float) -> float:
        """Return the examples per second as a multiple of those on one instance."""
        once = self.seconds(1) / self.seconds(instances)
        return once if self.scaling is Scaling.STRONG else instances * once

    def efficiency(self, instances: float) -> float:
        """Return the speed-up per instance: 1 is perfect."""
        return self.speed_up(instances) / instances

    @property
    def _form(self) -> _Form:
        return next(form for form in _FORMS[self.scaling] if form.name == self.name)

    def _value(self, instances: float) -> float:
        terms = zip(self._form.names, self._form.terms, strict=True)
        return sum(self.coefficients[name] * term(instances) for name, term in terms)

    @property
    def basis(self) -> str:
        """A text that says on which numbers of instances the law was fitted, and how well it fits."""
        counts = sorted(set(self.fitted_on))
        on = f"fitted on {', '.join(map(str, counts))} instance{'s' if counts != [1] else ''}"
        if len(counts) == 1:
            return f"{on}: one number of instances says nothing about scaling, so perfect scaling is assumed"
        if self.covariance is None:
            return f"{on}: as many points as coefficients, so its error is not known"
        return f"{on}: within {self.worst:.1%} of each point"


def fit(points: Iterable[Point], scaling: Scaling) -> Law:
    """Fit the simplest law that explains all points; if no law does, the law with the least sum of squares.

    Differences count as shares of the time, so that small and large times count alike. A law with k
    coefficients needs points for at least k different numbers of instances. The criterion AICc could choose
    between laws if there were many points. But it is not defined for two coefficients and four points, the
    usual numbers of a study.

    Raises ValueError without points.
    """
    measured = sorted(points, key=lambda point: point.instances)
    if not measured:
        raise ValueError("a law needs at least one point, but no run has a throughput")
    counts = len({point.instances for point in measured})
    forms = [form for form in _FORMS[scaling] if len(form.terms) <= counts]
    laws = [_fitted(form, measured, scaling) for form in forms]
    for law, _ in laws:
        if all(_explains(law, point) for point in measured):
            return law
    return min(laws, key=lambda each: each[1])[0]


def _explains(law: Law, point: Point) -> bool:
    return abs(law.seconds(point.instances) - point.seconds) <= max(
        TOLERANCE * point.seconds, 2 * point.error
    )


def _fitted(form: _Form, points: Sequence[Point], scaling: Scaling) -> tuple[Law, float]:
    """Return the law of this form that fits best, and the sum of its squared relative differences from the
    points.
    """
    measured = [point.instances / point.seconds if form.is_rate else point.seconds for point in points]
    rows = [
        [term(point.instances) / value for term in form.terms]
        for point, value in zip(points, measured, strict=True)
    ]
    found = nonnegative(rows, [1.0] * len(points))
    free = len(points) - len(form.terms)
    known = [(point.error / point.seconds) ** 2 for point in points if point.error]
    # The variance is the larger of two estimates: one from the errors of the points, one from their distances
    # to the law.
    stated = sum(known) / len(known) if len(known) == len(points) else 0.0
    left = found.squares / free if free else 0.0
    variance = max(stated, left)
    law = Law(
        form.name,
        scaling,
        dict(zip(form.names, found.values, strict=True)),
        tuple(point.instances for point in points),
        worst=0.0,
        covariance=(
            tuple(tuple(value * variance for value in line) for line in found.covariance)
            if free or stated
            else None
        ),
        width=_STUDENT.get(free, CONFIDENCE) if left >= stated else CONFIDENCE,
    )
    worst = max(abs(law.seconds(point.instances) / point.seconds - 1) for point in points)
    return Law(**{**vars(law), "worst": worst}), found.squares
