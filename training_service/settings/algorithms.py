"""What may be trained if nothing is configured."""

import tomllib
from importlib import resources

from job_tracker.catalog import Algorithm


def default_algorithms(model: type[Algorithm]) -> dict[str, Algorithm]:
    """The algorithms that come with the service, by name: those of algorithms.toml."""
    text = resources.files(__package__).joinpath("algorithms.toml").read_text(encoding="utf-8")
    return {name: model.model_validate(values) for name, values in tomllib.loads(text).items()}
