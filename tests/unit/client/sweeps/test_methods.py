"""Proposed parameters and pruned trials depend only on the previous trials."""

from random import Random
from statistics import median

import pytest

from tests.support.sweeps import settings
from training_service.client.sweeps.events import Ended, Event, Reported
from training_service.client.sweeps.history import Trial
from training_service.client.sweeps.methods import Grid, Pruner, method_of, pruner_of, total_trials
from training_service.client.sweeps.settings import Sweep

SPACE = {
    "LR": {"low": 0.001, "high": 1.0, "log": True},
    "LAYERS": {"low": 1, "high": 8},
    "WIDTH": {"low": 16, "high": 70, "step": 16},
    "DROPOUT": {"low": 0.0, "high": 0.5, "step": 0.1},
    "OPTIMIZER": ["sgd", "adam"],
}
METHODS = ["random", "tpe"]


def searched(sweep: Sweep, count: int) -> list[Trial]:
    """Propose `count` trials: every fifth fails, every fourth is pruned, and the last two are live."""
    trials: list[Trial] = []
    method = method_of(sweep)
    for number in range(count):
        parameters = method.propose(trials)
        value = (float(parameters["LR"]) - 0.1) ** 2 + abs(int(parameters["LAYERS"]) - 4)
        trial = Trial(number, parameters, "complete", number + 1, value=value)
        if number % 5 == 4:
            trial = Trial(number, parameters, "failed", number + 1)
        elif number % 4 == 3:
            trial = Trial(number, parameters, "pruned", number + 1, points=((1, value),), value=value)
        elif number >= count - 2:
            trial = Trial(number, parameters, "submitted", number + 1)
        trials.append(trial)
    return trials


def test_a_grid_tries_every_combination_once() -> None:
    sweep = settings(space={"A": [1, 2], "B": {"low": 1, "high": 3}, "C": ["x"]})
    grid, trials = Grid(sweep.space), list[Trial]()
    for number in range(total_trials(sweep)):
        trials.append(Trial(number, grid.propose(trials)))
    assert [tuple(trial.parameters.values()) for trial in trials] == [
        (a, b, "x") for a in (1, 2) for b in (1, 2, 3)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_proposals_are_in_the_space(method: str) -> None:
    sweep = settings(method=method, trials=30, space=SPACE)
    for trial in searched(sweep, 30):
        found = trial.parameters
        assert 0.001 <= float(found["LR"]) <= 1
        assert found["LAYERS"] in range(1, 9)
        assert found["WIDTH"] in (16, 32, 48, 64)
        assert min(abs(float(found["DROPOUT"]) - step / 10) for step in range(6)) < 1e-9
        assert found["OPTIMIZER"] in ("sgd", "adam")
        assert {type(value) for value in found.values()} <= {int, float, str}


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_and_trials_give_the_same_proposal_in_another_program(method: str) -> None:
    sweep = settings(method=method, trials=30, space=SPACE, seed=7)
    trials = searched(sweep, 25)
    for known in (0, 5, 15, 22):
        assert method_of(sweep).propose(trials[:known]) == trials[known].parameters
    assert method_of(sweep).propose(trials) == method_of(sweep).propose(trials)
    other = settings(method=method, trials=30, space=SPACE, seed=8)
    assert method_of(other).propose([]) != trials[0].parameters


def test_tpe_finds_better_values_than_chance() -> None:
    space = {"X": {"low": -10.0, "high": 10.0}, "Y": {"low": -10.0, "high": 10.0}}
    best: dict[str, list[float]] = {}
    for name in METHODS:
        for seed in range(5):
            method = method_of(settings(method=name, trials=40, space=space, seed=seed * 1000))
            trials: list[Trial] = []
            for number in range(40):
                at = method.propose(trials)
                value = -((float(at["X"]) - 3) ** 2) - (float(at["Y"]) + 5) ** 2
                trials.append(Trial(number, at, "complete", number + 1, value=value))
            best.setdefault(name, []).append(max(trial.value or -1e9 for trial in trials))
    assert median(best["tpe"]) > median(best["random"])


def pruner(factor: int = 2, **changes: object) -> Pruner:
    made = pruner_of(settings(pruning={"reduction_factor": factor, **changes}))
    assert made
    return made


def test_asha_keeps_the_best_half_at_each_step() -> None:
    asha = pruner(min_steps=1)
    assert not asha.should_prune(0, 1, 0.5)
    assert asha.should_prune(1, 1, 0.4)
    assert not asha.should_prune(2, 1, 0.6)
    assert asha.should_prune(3, 1, 0.1)
    assert not asha.should_prune(0, 2, 0.5)
    assert asha.should_prune(2, 2, 0.2)


def test_asha_without_a_first_step_waits_for_the_first_complete_trial() -> None:
    asha = pruner()
    assert [asha.should_prune(number, 1, -number) for number in range(4)] == [False] * 4
    for step in range(2, 301):
        asha.should_prune(0, step, 1.0)
    asha.add(Ended(trial=0, outcome="complete", value=1.0))
    assert [asha.should_prune(number, 3, -number) for number in (1, 2, 3)] == [False, True, True]


def test_asha_decides_the_same_after_a_restart() -> None:
    random = Random(7)
    whole, events = pruner(min_steps=1), list[Event]()
    alive = set(range(12))
    for step in range(1, 20):
        resumed = pruner(min_steps=1)
        for event in events:
            resumed.add(event)
        for number in sorted(alive):
            value = random.random()
            prune = whole.should_prune(number, step, value)
            assert resumed.should_prune(number, step, value) == prune
            events.append(Reported(trial=number, points=((step, value),), prune=prune))
            if prune:
                alive.discard(number)
    assert len(alive) < 12
