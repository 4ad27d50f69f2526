"""TPE and ASHA with Optuna. Optuna's studies are in memory, built from the events of the sweep."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal

from training_service.client.errors import InvalidRequest
from training_service.client.sweeps.events import Ended, Event, Reported
from training_service.client.sweeps.history import Trial
from training_service.client.sweeps.settings import Pruning
from training_service.client.sweeps.space import Axis, Choices, Value

try:
    import optuna
    from optuna import distributions
    from optuna.trial import FrozenTrial, TrialState, create_trial
except ImportError as error:
    raise InvalidRequest(
        "Optuna is needed for the method tpe and for pruning; run: pip install 'training-service[sweep]'"
    ) from error

optuna.logging.set_verbosity(optuna.logging.WARNING)

Direction = Literal["maximize", "minimize"]


class Tpe:
    """The tree-structured Parzen estimator: ten random trials, then trials near the good ones.

    It avoids the parameters of live trials, so that concurrent trials differ.
    """

    def __init__(self, space: Mapping[str, Axis], direction: Direction, seed: int) -> None:
        self._space = {name: _distribution(axis) for name, axis in space.items()}
        self._direction, self._seed = direction, seed

    def propose(self, trials: Sequence[Trial]) -> Mapping[str, Value]:
        """Return the parameters of the next trial."""
        # Each trial has its own seed, because the state of a generator is lost when the program ends.
        seed = Random(f"{self._seed}/{len(trials)}").getrandbits(32)  # noqa: S311
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        study = optuna.create_study(direction=self._direction, sampler=sampler)
        study.add_trials([self._frozen(trial) for trial in trials])
        return study.ask(self._space).params

    def _frozen(self, trial: Trial) -> FrozenTrial:
        state = {
            "complete": TrialState.COMPLETE,
            "pruned": TrialState.PRUNED,
            "failed": TrialState.FAIL,
            "cancelled": TrialState.FAIL,
        }.get(trial.state, TrialState.RUNNING)
        return create_trial(
            state=state,
            params=dict(trial.parameters),
            distributions=self._space,
            value=trial.value if state is TrialState.COMPLETE else None,
            intermediate_values=dict(trial.points[-1:]),
        )


class Asha:
    """Asynchronous successive halving: stops poor trials, based on all events in their order."""

    def __init__(self, pruning: Pruning, direction: Direction) -> None:
        pruner = optuna.pruners.SuccessiveHalvingPruner(
            min_resource=pruning.min_steps or "auto", reduction_factor=pruning.reduction_factor
        )
        self._study = optuna.create_study(direction=direction, pruner=pruner)
        self._trials: dict[int, optuna.Trial] = {}

    def should_prune(self, number: int, step: int, value: float) -> bool:
        """Add a value that a trial has reported, and return whether to stop the trial."""
        trial = self._trials.get(number) or self._trials.setdefault(number, self._study.ask())
        trial.report(value, step)
        return trial.should_prune()

    def add(self, event: Event) -> None:
        """Add an event of an earlier run, or the end of a trial in this run."""
        if isinstance(event, Reported):
            for step, value in event.points:
                self.should_prune(event.trial, step, value)
        elif isinstance(event, Ended) and (trial := self._trials.get(event.trial)):
            complete = event.outcome == "complete"
            self._study.tell(
                trial,
                event.value if complete else None,
                TrialState.COMPLETE if complete else TrialState.FAIL,
            )


def _distribution(axis: Axis) -> distributions.BaseDistribution:
    if isinstance(axis, Choices):
        return distributions.CategoricalDistribution(axis.choices)
    if axis.is_whole:
        step = int(axis.step or 1)
        return distributions.IntDistribution(int(axis.low), int(axis.last), log=axis.log, step=step)
    return distributions.FloatDistribution(axis.low, axis.last, log=axis.log, step=axis.step)
