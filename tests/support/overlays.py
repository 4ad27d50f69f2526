"""The deployed objects, as kustomize builds them."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster import ON_CI

ROOT = Path(__file__).parents[2]
Manifest = dict[str, Any]


def kubectl() -> str:
    """Return the path of kubectl: the machine's, or that of the tests' cluster."""
    cache_folder = os.environ.get("TEST_CLUSTER_CACHE", str(Path.home() / ".cache/training-service/cluster"))
    found = shutil.which("kubectl", path=f"{os.environ['PATH']}{os.pathsep}{cache_folder}/bin")
    if found is None and not ON_CI:
        pytest.skip("there is no kubectl; `make cluster` installs it on Debian")
    assert found is not None, "there is no kubectl"
    return found


@cache
def kustomized(folder: str) -> list[Manifest]:
    command = [kubectl(), "kustomize", str(ROOT / "deploy" / folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def one(objects: list[Manifest], kind: str, name: str = "training-service") -> Manifest:
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def deployed(objects: list[Manifest]) -> Manifest:
    """Return the template of the service's pods."""
    template: Manifest = one(objects, "Deployment")["spec"]["template"]
    return template


def container(objects: list[Manifest]) -> Manifest:
    (found,) = deployed(objects)["spec"]["containers"]
    return dict(found)
