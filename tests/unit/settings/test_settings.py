"""The model of all settings, with a backend from another package."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar, get_args

import pytest
from pydantic import BaseModel, ValidationError

from job_tracker.backends.fake import FakePlugin
from job_tracker.backends.registry import installed
from job_tracker.common.config import Config
from job_tracker.domain.policies import Deadlines
from training_service.settings import settings, settings_model


class Recipe(Config):
    """A recipe in which every field has a default."""

    command: tuple[str, ...] = ()
    nproc_per_node: int = 1


class Plugin(FakePlugin):
    recipe_model: ClassVar[type[Config] | None] = Recipe


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings where the backend "mine" is installed."""
    plugins = {**installed(), "mine": Plugin}
    monkeypatch.setattr(settings, "installed", lambda: plugins)
    return settings_model.__wrapped__()


def test_an_algorithm_without_a_recipe_for_the_backend_is_refused(model: Any) -> None:
    with pytest.raises(ValidationError, match=r"algorithms\.a\.mine is missing; backend mine needs it"):
        model(backend="mine", algorithms={"a": {}})
    with pytest.raises(ValidationError, match=r"algorithms\.a\.process\.command is missing"):
        model(algorithms={"a": {"mine": {}}})
    assert model(backend="mine", algorithms={"a": {"mine": {}}}).algorithms["a"].recipes["mine"] == Recipe()


def test_built_in_algorithms_that_cannot_run_on_the_backend_are_left_out(model: Any) -> None:
    assert model(backend="mine").algorithms == {}
    assert "intent-classification" in model().algorithms


def test_a_default_deadline_of_0_is_none_as_in_requests(model: Any) -> None:
    zero = dict.fromkeys(("queue", "start", "run", "progress"), 0)
    assert model(deadlines=zero).job_defaults.deadlines == Deadlines()
    assert model(deadlines={"run": 60}).job_defaults.deadlines.run == timedelta(seconds=60)


@pytest.mark.parametrize("name", ["Vision", "a/b", "*", ""])
def test_a_name_that_no_project_can_have_is_refused(model: Any, name: str) -> None:
    with pytest.raises(ValidationError, match="is not the name of a project: use 1 to 40"):
        model(projects={name: {}})


def models_of(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for field in kind.model_fields.values():
            yield from models_of(field.annotation)
    for part in get_args(kind):
        yield from models_of(part)


def test_every_setting_has_a_description_that_is_a_sentence() -> None:
    fields = {
        f"{model.__name__}.{name}": field.description
        or ("" if not any(models_of(field.annotation)) else "A.")
        for model in models_of(settings_model())
        for name, field in model.model_fields.items()
    }
    assert {
        name: text
        for name, text in fields.items()
        if not re.match(r"^[A-Z`]|fsspec", text) or text[-1:] != "."
    } == {}
