"""Search methods: they choose the parameters of the next trial."""

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
    """Proposes trials.

    Proposals depend only on the settings and on previous trials, so a resumed sweep makes the same proposals.
    """

    def propose(self, trials: Sequence[Trial]) -> Assignment:
        """Return the parameters of the next trial."""
        ...


class Pruner(Protocol):
    """Decides which trials to stop early. It needs all events of the sweep, in their order."""

    def should_prune(self, number: int, step: int, value: float) -> bool:
        """Add a value that a trial has reported, and return whether to stop the trial."""
        ...

    def add(self, event: Event) -> None:
        """Add an event of an earlier run of the sweep, or the end of a trial in this run.

        The values that jobs report in this run are added by `should_prune`.
        """
        ...


class Grid:
    """Tries every combination once. The last parameter changes fastest."""

    def __init__(self, space: Mapping[str, Axis]) -> None:
        self._values = {name: axis.grid() for name, axis in space.items()}

    @property
    def size(self) -> int:
        """The number of combinations."""
        return math.prod(map(len, self._values.values()))

    def propose(self, trials: Sequence[Trial]) -> Assignment:
        """Return the next combination."""
        position, chosen = len(trials), dict[str, Value]()
        for name, values in reversed(self._values.items()):
            position, at = divmod(position, len(values))
            chosen[name] = values[at]
        return {name: chosen[name] for name in self._values}


class RandomSearch:
    """Draws each parameter independently. The same seed gives the same trials."""

    def __init__(self, space: Mapping[str, Axis], seed: int) -> None:
        self._space, self._seed = space, seed

    def propose(self, trials: Sequence[Trial]) -> Assignment:
        """Return random parameters for the next trial."""
        random = Random(f"{self._seed}/{len(trials)}")  # noqa: S311
        return {name: axis.sample(random) for name, axis in self._space.items()}


def method_of(sweep: Sweep) -> Method:
    """Return the sweep's method. Raises InvalidRequest if it needs Optuna and Optuna is not installed."""
    if sweep.method == "grid":
        return Grid(sweep.space)
    if sweep.method == "random":
        return RandomSearch(sweep.space, sweep.seed)
    from training_service.client.sweeps.optuna_methods import Tpe

    return Tpe(sweep.space, sweep.objective.direction, sweep.seed)


def pruner_of(sweep: Sweep) -> Pruner | None:
    """Return the sweep's pruner; None if the sweep does not prune.

    Raises InvalidRequest if the sweep prunes and Optuna is not installed.
    """
    if sweep.asha is None:
        return None
    from training_service.client.sweeps.optuna_methods import Asha

    return Asha(sweep.asha, sweep.objective.direction)


def total_trials(sweep: Sweep) -> int:
    """Return the number of trials of a sweep."""
    return Grid(sweep.space).size if sweep.trials is None else sweep.trials
