"""The algorithms and datasets that ship with the service, for configurations that have none: shipped.toml."""

import tomllib
from importlib import resources
from typing import Any

from job_tracker.catalog import Algorithm, Dataset


def default_algorithms(model: type[Algorithm]) -> dict[str, Algorithm]:
    """The algorithms that ship, by name."""
    return {name: model.model_validate(values) for name, values in _shipped("algorithms").items()}


def default_datasets(storage: str) -> dict[str, Dataset]:
    """The datasets that ship, by id, in the storage at this URI."""
    return {
        name: Dataset.model_validate({**values, "uri": values["uri"].replace("{storage}", storage)})
        for name, values in _shipped("datasets").items()
    }


def _shipped(table: str) -> dict[str, Any]:
    text = resources.files(__package__).joinpath("shipped.toml").read_text(encoding="utf-8")
    entries: dict[str, Any] = tomllib.loads(text)[table]
    return entries
