"""The results of a study of scaling: its points, the law that the points follow, and predictions.

A study is a sweep over the number of instances, with the examples per second as objective. Trials that differ
only in the number of instances form one series.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from training_service.client.requests import INSTANCES_PARAMETER
from training_service.client.scaling.laws import Law, Point, Scaling, fit
from training_service.client.scaling.prediction import Prediction, predict
from training_service.client.sweeps.history import Trial
from training_service.client.sweeps.settings import Sweep
from training_service.client.sweeps.space import Value

RATE = "examples_per_second"
"""The default metric: the examples per second of all instances together."""
STEP, WAITING, SENT = "step_seconds", "waiting_seconds", "gradient_sent_bytes"
"""Metrics that trainer_kit reports for a step: its time, the master's time of waiting for others, the bytes
of gradients that were sent."""
LOSS = "loss"
MOST_OFF = 0.1
"""A law does not explain the points if it differs from one of them by more than this share of the point."""
FURTHER = 4
"""A law is used up to this multiple of the largest measured number of instances."""


@dataclass(frozen=True)
class Series:
    """Trials that differ only in the number of instances."""

    parameters: Mapping[str, Value]
    """The values of the searched parameters, without the number of instances."""
    trials: Mapping[int, Trial]
    """The trials by number of instances."""
    scaling: Scaling

    @cached_property
    def rates(self) -> dict[int, float]:
        """The measured examples per second, by the number of instances.

        Trials without a result are left out.
        """
        return {
            n: t.value for n, t in self.trials.items() if t.state == "complete" and t.value and t.value > 0
        }

    @cached_property
    def waiting(self) -> dict[int, float]:
        """The share of a step in which the master waits for others, by the number of instances.

        Numbers of instances for which it was not measured are left out.
        """
        known = {n: self.trials[n].beside for n in self.rates}
        measured = {n: of for n, of in known.items() if WAITING in of and of.get(STEP, 0) > 0}
        return {n: min(1.0, max(0.0, of[WAITING] / of[STEP])) for n, of in measured.items()}

    @cached_property
    def law(self) -> Law | None:
        """The law that the points follow; None without points.

        With strong scaling, its times are the seconds in which the whole group computes one example. With
        weak scaling, they are the seconds in which each instance computes one example.
        """
        points = [Point(n, self._seconds(n, rate)) for n, rate in self.rates.items()]
        return fit(points, self.scaling) if points else None

    @cached_property
    def prediction(self) -> Prediction | None:
        """The prediction from the runs on one and two instances; None if one of them has no rate."""
        if not {1, 2} <= self.rates.keys():
            return None
        one, two = (self._seconds(n, self.rates[n]) for n in (1, 2))
        return predict(one, two, self.scaling)

    @property
    def explains(self) -> bool:
        """Whether there is a law, and it is within `MOST_OFF` of each point."""
        return self.law is not None and self.law.worst <= MOST_OFF

    @property
    def most(self) -> int:
        """The largest number of instances for which the law is used."""
        return FURTHER * max(self.rates, default=1)

    @property
    def missing(self) -> dict[int, str]:
        """The numbers of instances that have no measured rate, with the reason for each."""
        return {n: trial.reason or trial.state for n, trial in self.trials.items() if n not in self.rates}

    def rate(self, instances: int) -> float:
        """Return the examples per second that the law predicts. Raises ValueError without a law."""
        if self.law is None:
            raise ValueError("no job has reported a throughput, so no law was fitted")
        return self._rate(instances, self.law.seconds(instances))

    def predicted(self, instances: int) -> float | None:
        """Return the examples per second that the runs on one and two instances predict; None if one of these
        runs has no rate.
        """
        if self.prediction is None:
            return None
        return self._rate(instances, self.prediction.seconds(instances))

    def interval(self, instances: int) -> tuple[float, float] | None:
        """Return a lower and an upper bound of the examples per second that the law predicts.

        None: there is no law, or its error is unknown, because there are too few points.
        """
        bounds = self.law.interval(instances) if self.law else None
        if bounds is None:
            return None
        low, high = bounds
        return self._rate(instances, high), self._rate(instances, low) if low else float("inf")

    def speed_up(self, instances: int) -> float:
        """Return the measured rate as a multiple of the rate of one instance.

        If the rate of one instance was not measured, the law predicts it.
        """
        return self.rates[instances] / self.rates.get(1, self.rate(1))

    def _seconds(self, instances: int, rate: float) -> float:
        return (instances if self.scaling is Scaling.WEAK else 1) / rate

    def _rate(self, instances: int, seconds: float) -> float:
        return (instances if self.scaling is Scaling.WEAK else 1) / seconds


@dataclass(frozen=True)
class Comparison:
    """A comparison of a series with the fastest one, by their rates on the same number of instances."""

    instances: int
    """The largest number of instances for which all compared series have a rate."""
    fastest: Series
    behind: float
    """The share by which the series is slower than the fastest one; 0 for the fastest one itself."""
    of: int
    """The number of series that are compared."""


def compared(every: Sequence[Series]) -> list[Comparison | None]:
    """Return a comparison for each series.

    It is None for a series without points. All are None if fewer than two series have points, or if these
    series have no measured number of instances in common.
    """
    valid = [series for series in every if series.rates]
    common = set.intersection(*({*series.rates} for series in valid)) if len(valid) > 1 else set()
    if not common:
        return [None] * len(every)
    most = max(common)
    fastest = max(valid, key=lambda series: series.rates[most])
    return [
        Comparison(most, fastest, 1 - series.rates[most] / fastest.rates[most], len(valid))
        if series.rates
        else None
        for series in every
    ]


def settings_of(
    algorithm: str, instances: Sequence[int], others: Mapping[str, Any], metric: str = RATE
) -> dict[str, Any]:
    """Return the settings of a study as a sweep. `others` are further settings; they may have a `space`."""
    # A grid changes its last parameter fastest, so it completes one series before it begins the next.
    space = {**others.get("space", {}), INSTANCES_PARAMETER: list(instances)}
    objective: dict[str, Any] = {"metric": metric, "direction": "maximize", "value": "median"}
    objective |= {"beside": [STEP, WAITING, SENT], "last_beside": [LOSS], "enough": others.get("enough")}
    return {
        "algorithm": algorithm,
        "name": algorithm[:60],
        **{name: value for name, value in others.items() if name != "enough"},
        "space": space,
        "method": "grid",
        "objective": objective,
        # Only one job at a time, since jobs that run at the same time may share machines and links.
        "at_once": 1,
    }


def series_of(settings: Sweep, trials: Iterable[Trial]) -> list[Series]:
    """Group the trials of a study into series, in the order of the first trial of each series."""
    scaling = Scaling.WEAK if settings.per_instance else Scaling.STRONG
    grouped: dict[tuple[tuple[str, Value], ...], dict[int, Trial]] = {}
    for trial in trials:
        others = tuple((k, v) for k, v in trial.parameters.items() if k != INSTANCES_PARAMETER)
        grouped.setdefault(others, {})[int(trial.parameters[INSTANCES_PARAMETER])] = trial
    return [Series(dict(others), dict(sorted(of.items())), scaling) for others, of in grouped.items()]
