"""Settings with the tables of a backend that another package brings."""

from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from job_tracker.backends.fake import FakePlugin
from job_tracker.backends.registry import installed
from job_tracker.common.config import Config
from training_service.settings import settings, settings_model


class Recipe(Config):
    """Every value has a default."""

    command: tuple[str, ...] = ()
    nproc_per_node: int = 1


class Plugin(FakePlugin):
    """See BackendPlugin."""

    recipe_model: ClassVar[type[Config] | None] = Recipe


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings where the backend "mine" is installed."""
    plugins = {**installed(), "mine": Plugin}
    monkeypatch.setattr(settings, "installed", lambda: plugins)
    return settings_model.__wrapped__()


def test_an_algorithm_without_a_recipe_for_the_backend_is_refused(model: Any) -> None:
    with pytest.raises(ValidationError, match=r"algorithms\.a has no mine, which backend mine needs"):
        model(backend="mine", algorithms={"a": {}})
    with pytest.raises(ValidationError, match=r"algorithms\.a has no process\.command, which"):
        model(algorithms={"a": {"mine": {}}})
    assert model(backend="mine", algorithms={"a": {"mine": {}}}).algorithms["a"].recipes["mine"] == Recipe()
