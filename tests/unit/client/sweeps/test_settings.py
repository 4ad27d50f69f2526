"""Invalid settings are refused before the first submission."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sweeps import document, settings
from training_service.client import InvalidRequest
from training_service.client.sweeps.settings import checked

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl

GOAL = {"metric": "score", "direction": "maximize"}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"colour": 1}, "colour: unknown name; allowed: algorithm, dataset,"),
    ({"algorithm": None}, "algorithm: a value is required"),
    ({"space": None}, "space: a value is required"),
    ({"space": {}}, "space: it must have at least 1 item, not 0"),
    ({"space": {"X": []}}, "space.X.choices: it must have at least 1 item, not 0"),
    ({"space": {"X": 3}}, "space.X: 3 is not allowed: it must be a table"),
    ({"space": {"X": [[1]]}}, "space.X.choices.0: it must be text, a finite number, true or false"),
    ({"space": {"X": {"low": 5, "high": 3}}}, "space.X: low 5 is above high 3"),
    ({"space": {"X": {"low": 5, "high": 5}}}, "space.X: low and high are both 5"),
    ({"space": {"X": {"low": 0, "high": 3, "log": True}}}, "space.X: low is 0; with log, it must be above 0"),
    ({"space": {"X": {"low": 1, "high": 3, "log": True, "step": 1}}}, "give either log or step, not both"),
    ({"space": {"X": {"low": 1, "high": 3, "step": 0}}}, "space.X: step is 0; it must be above 0"),
    (
        {"space": {"X": {"low": 1, "high": 3, "step": 5}}},
        "space.X: step is 5; it must be above 0 and at",
    ),
    ({"space": {"X": {"low": 1, "hgih": 3}}}, "space.X.hgih: unknown name; allowed: low, high, log"),
    (
        {"space": {"X": {"low": "a", "high": 3}}},
        "space.X.low: 'a' is not allowed: it must be a finite number",
    ),
    ({"space": {"X": {"low": 1.0, "high": float("inf")}}}, "space.X.high: inf is not allowed"),
    (
        {"space": {"X": {"low": 1.0, "high": 2.0}}},
        "space.X: the method grid needs choices or a range",
    ),
    ({"space": {"X": list(range(200)), "Y": list(range(200))}}, "the grid has 40000 combinations; at most"),
    ({"trials": 3}, "the method grid makes one trial per combination: remove the setting trials"),
    ({"method": "random"}, "trials is missing: the method random needs the number of trials"),
    ({"method": "sgd"}, "method: 'sgd' is not allowed: it must be 'grid', 'random' or 'tpe'"),
    (
        {"objective": {**GOAL, "direction": "up"}},
        "objective.direction: 'up' is not allowed: it must be",
    ),
    (
        {"objective": {**GOAL, "metric": ""}},
        "objective.metric: '' is not allowed: it must have at least 1",
    ),
    (
        {"objective": {**GOAL, "value": "first"}},
        "objective.value: 'first' is not allowed: it must be 'last'",
    ),
    ({"parameters": {"X": 1}}, "X is in both parameters and space"),
    (
        {"instances": 2, "parameters": {"PARALLEL_INSTANCES": 2}},
        "give either instances or PARALLEL_INS",
    ),
    ({"pruning": {"steps": 3}}, "pruning.steps: unknown name; allowed: min_steps, reduction_factor"),
    ({"pruning": 3}, "pruning: 3 is not allowed: it must be a table"),
    (
        {"pruning": True, "objective": {**GOAL, "value": "manifest"}},
        "pruning needs a reported metric",
    ),
    ({"at_once": 0}, "at_once: 0 is not allowed: it must be greater than or equal to 1"),
    ({"deadlines": {"run": "x"}}, "deadlines: Failed to parse run field"),
    ({"deadlines": {"progress": "soon"}}, "deadlines: Failed to parse progress field"),
    (
        {"number_policy": {"on_nan": 1}},
        'Message type "training.NumberPolicy" has no field named "on_nan"',
    ),
    ({"pod_options": {"gpu": 1}}, 'pod_options: Message type "training.PodOptions" has no field named "gpu"'),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_a_bad_setting_is_refused_with_its_name_and_what_is_allowed(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        checked(document(**change))
    assert message in str(refusal.value)


def test_settings_survive_a_round_trip_through_json() -> None:
    original = settings(
        space={"A": [1, 1.5, "x", True], "B": {"low": 1.0, "high": 2.0, "step": 0.5}, "choices": [1, 2]},
        pruning={"min_steps": 2},
        deadlines={"run": "60s", "progress": "300s"},
        number_policy={"onNonfinite": "fail", "metrics": ["*loss*"]},
    )
    assert type(original).model_validate_json(original.model_dump_json()) == original


def test_only_tpe_prunes_by_default() -> None:
    assert settings(method="tpe", trials=3).asha is not None
    assert settings(method="tpe", trials=3, pruning=False).asha is None
    assert settings(method="tpe", trials=3, objective={**GOAL, "value": "manifest"}).asha is None
    assert settings().asha is None
    assert settings(pruning=True).asha is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-s", "X"), "'X' is not KEY=VALUE"),
        (("-s", "Y=1..a"), "must be choices"),
        (("-s", "Y=3..1"), "space.Y: low 3 is above high 1"),
        (("-p", "X=1"), "X is in both parameters and space"),
        (("--direction", "up"), "objective.direction: 'up'"),
        (("--to", "x.bmp"), "'x.bmp' must end in .png, .svg, .pdf"),
        (("--folder", "search.toml"), "'search.toml' cannot be used as the sweep's folder: File exists"),
        (("--resume", "--cancel"), "give only one of --resume, --cancel and --best"),
        (("--resume", "--seed", "1"), "cannot be changed; omit seed"),
        (("--resume",), "there is no sweep in search.sweep"),
    ],
)
def test_an_invalid_option_starts_nothing(
    training: ServerInThread, trainctl: Trainctl, file: Path, options: tuple[str, ...], message: str
) -> None:
    result = trainctl("sweep", str(file), *options)
    assert result.exit_code in (2, 3)
    assert message in result.stderr
    assert (training.service.requests, list(file.parent.iterdir())) == ([], [file])


def test_a_file_that_is_not_toml_is_refused(trainctl: Trainctl, file: Path) -> None:
    file.write_text("x =")
    assert "is not valid TOML" in trainctl("sweep", str(file)).stderr
    assert "cannot be read" in trainctl("sweep", str(file.with_name("nope.toml"))).stderr


def test_without_optuna_the_error_names_the_package(
    trainctl: Trainctl, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "training_service.client.sweeps.optuna_methods", raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = trainctl("sweep", str(file), "--method", "tpe", "--trials", "3")
    assert result.exit_code == 2
    assert "pip install 'training-service[sweep]'" in result.stderr
    assert list(file.parent.iterdir()) == [file]
