"""Which parameters to try next."""

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol

from training_service.client.sweeps.events import Event
from training_service.client.sweeps.history import Trial
from training_service.client.sweeps.settings import Sweep
from training_service.client.sweeps.space import Axis, Value

Assignment = Mapping[str, Value]


class Method(Protocol):
    """Proposes trials, by nothing but those before: so a sweep that was interrupted goes on the same."""

    def propose(self, trials: Sequence[Trial]) -> Assignment:
        """The parameters of the trial that follows these."""
        ...


class Pruner(Protocol):
    """Tells which trials are not worth going on, by what has happened in its order."""

    def lags_behind(self, number: int, step: int, value: float) -> bool:
        """Takes in a value that a trial has reported; True if with it the trial is to be given up."""
        ...

    def hear(self, event: Event) -> None:
        """Takes in what has happened besides: everything of an earlier run, and how trials end."""
        ...


class Grid:
    """Every combination once; the last parameter changes fastest."""

    def __init__(self, space: Mapping[str, Axis]) -> None:
        self._values = {name: axis.grid() for name, axis in space.items()}

    @property
    def size(self) -> int:
        """How many combinations there are."""
        return math.prod(map(len, self._values.values()))

    def propose(self, trials: Sequence[Trial]) -> Assignment:
        """The combination whose turn it is."""
        position, chosen = len(trials), dict[str, Value]()
        for name, values in reversed(self._values.items()):
            position, at = divmod(position, len(values))
            chosen[name] = values[at]
        return {name: chosen[name] for name in self._values}


class RandomSearch:
    """Each parameter drawn by itself; the same seed gives the same trials."""

    def __init__(self, space: Mapping[str, Axis], seed: int) -> None:
        self._space, self._seed = space, seed

    def propose(self, trials: Sequence[Trial]) -> Assignment:
        """The draw of this number."""
        random = Random(f"{self._seed}/{len(trials)}")  # noqa: S311
        return {name: axis.sample(random) for name, axis in self._space.items()}


def method_of(sweep: Sweep) -> Method:
    """The method that a sweep wants. Raises InvalidRequest if it needs Optuna, which is an extra."""
    if sweep.method == "grid":
        return Grid(sweep.space)
    if sweep.method == "random":
        return RandomSearch(sweep.space, sweep.seed)
    from training_service.client.sweeps.optuna_methods import Tpe

    return Tpe(sweep.space, sweep.objective.direction, sweep.seed)


def pruner_of(sweep: Sweep) -> Pruner | None:
    """The pruner that a sweep wants, if any. Raises InvalidRequest without Optuna."""
    if sweep.asha is None:
        return None
    from training_service.client.sweeps.optuna_methods import Asha

    return Asha(sweep.asha, sweep.objective.direction)


def trials_in_all(sweep: Sweep) -> int:
    """How many trials the sweep makes."""
    return Grid(sweep.space).size if sweep.trials is None else sweep.trials
