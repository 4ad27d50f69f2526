"""The built-in algorithms and datasets in shipped.toml."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from job_tracker.catalog import Algorithm, Dataset


@cache
def default_algorithms(model: type[Algorithm]) -> dict[str, Algorithm]:
    """Return the built-in algorithms, by name. All callers get the same dictionary."""
    return {name: model.model_validate(values) for name, values in _shipped("algorithms").items()}


def default_datasets(storage: str) -> dict[str, Dataset]:
    """Return the built-in datasets, by id, in the storage at this URI."""
    return {
        name: Dataset.model_validate({**values, "uri": values["uri"].replace("{storage}", storage)})
        for name, values in _shipped("datasets").items()
    }


@cache
def _shipped(table: str) -> dict[str, Any]:
    text = resources.files(__package__).joinpath("shipped.toml").read_text(encoding="utf-8")
    entries: dict[str, Any] = tomllib.loads(text)[table]
    return entries
