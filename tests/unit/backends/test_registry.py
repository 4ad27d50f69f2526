"""Backends of other packages, written as in docs/writing-a-backend.md."""

import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends import registry
from job_tracker.backends.base import Backend
from job_tracker.catalog import algorithm_model
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.group import InstanceOptions, InstanceSpec

PAGE = (Path(__file__).parents[3] / "docs" / "writing-a-backend.md").read_text()


def shown(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def example() -> dict[str, Any]:
    """Load the plugin of the page."""
    names: dict[str, Any] = {"__name__": "slurm_backend.plugin"}
    exec(shown("python")[0], names)
    return names


def test_the_example_is_configured_and_resolves_instances() -> None:
    names = example()
    _, text = shown("toml")
    configured = tomllib.loads(text)
    model = algorithm_model({"slurm": names["SlurmRecipe"]}, {})
    algorithm = model.model_validate(configured["algorithms"]["my-training"])
    plugin: registry.BackendPlugin = names["SlurmPlugin"](names["SlurmSettings"](**configured["slurm"]))
    assert plugin.limits is not None
    sent = plugin.limits.check({"nproc_per_node": 2})
    command = ("python", "-m", "my_training")
    assert plugin.resolve(algorithm, "worker", sent) == InstanceSpec(command=command, nproc_per_node=2)
    assert plugin.resolve(algorithm, "worker", InstanceOptions()).processes == 1
    with pytest.raises(InvalidField, match="allowed: nproc_per_node"):
        plugin.limits.check({"labels": {"team": "nlp"}})


def test_the_page_explains_every_part_of_a_plugin_and_of_a_backend() -> None:
    explained = set(re.findall(r"^\| `(\w+)", PAGE, re.MULTILINE))
    plugin = {*registry.BackendPlugin.__annotations__, *methods_of(registry.BackendPlugin)}
    assert plugin - explained == set()
    assert methods_of(Backend) - explained == set()
    assert len(methods_of(Backend)) == 6


def test_client_libraries_are_imported_when_a_backend_is_opened_and_not_before() -> None:
    """Their import takes longer than all other parts of a start, and a service opens one backend of four."""
    program = (
        "import sys; from job_tracker.backends import registry; registry.installed(); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    modules = set(loaded.stdout.split())
    assert "job_tracker.backends.kubernetes.plugin" in modules
    assert modules & {"aiohttp", "docker", "kubernetes", "kubernetes_validate", "psutil"} == set()


def methods_of(protocol: type) -> set[str]:
    return {
        name
        for name, value in inspect.getmembers(protocol)
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    }


def test_backends_of_all_packages_are_found_by_name() -> None:
    assert {"docker", "fake", "kubernetes", "process"} <= registry.installed().keys()
