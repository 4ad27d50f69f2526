"""The objects that a deployment creates, as kustomize builds them."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster import ON_CI
from tests.support.patience import PATIENCE
from training_service.settings import Settings
from training_service.settings.loading import load

ROOT = Path(__file__).parents[2]
Manifest = dict[str, Any]


def kubectl() -> str:
    """Return the path of kubectl on this machine, or in the cache of the tests' cluster.

    Without it, the test is skipped, or fails on CI.
    """
    cache_folder = os.environ.get("TEST_CLUSTER_CACHE", str(Path.home() / ".cache/training-service/cluster"))
    found = shutil.which("kubectl", path=f"{os.environ['PATH']}{os.pathsep}{cache_folder}/bin")
    if found is None and not ON_CI:
        pytest.skip("there is no kubectl; `make cluster` installs it on Debian")
    assert found is not None, "there is no kubectl"
    return found


@cache
def kustomized(folder: str) -> list[Manifest]:
    command = [kubectl(), "kustomize", str(ROOT / "deploy" / folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
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


def with_components(folder: Path, overlay: str, *components: str) -> list[Manifest]:
    """Return the objects of an overlay with these components, which an operator would list in a
    kustomization.
    """
    deploy = os.path.relpath(ROOT / "deploy", folder)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{deploy}/overlays/{overlay}"],
        "components": [f"{deploy}/optional/{each}" for each in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return kustomized(str(folder))


def settings_in_pod(objects: list[Manifest], folder: Path, patch: pytest.MonkeyPatch) -> Settings:
    """Return the settings as in the service's pod: from the file, and from the variables of the image and the
    pod.
    """
    for name in [*os.environ]:
        if name.startswith("TRAINING_SERVICE_"):
            patch.delenv(name)
    for name, value in re.findall(r"(TRAINING_SERVICE_\w+)=(\S+)", (ROOT / "Dockerfile").read_text()):
        patch.setenv(name, value)
    namespace = one(objects, "Deployment")["metadata"]["namespace"]
    for variable in container(objects)["env"]:
        # Only one variable has no value: the namespace, which refers to a field of the pod.
        patch.setenv(variable["name"], variable.get("value", namespace))
    (config,) = [each["data"] for each in objects if each["kind"] == "ConfigMap"]
    (folder / "config.toml").write_text(config["config.toml"])
    return load(folder / "config.toml")


def files_are_mounted_from_secrets(objects: list[Manifest], files: Iterable[Path | None]) -> bool:
    """Return whether exactly the folders of the files are mounted from Secrets, each as a whole."""
    mounts = {Path(each["mountPath"]): each for each in container(objects)["volumeMounts"]}
    volumes = {each["name"]: each for each in deployed(objects)["spec"]["volumes"]}
    of_secrets = {path for path, each in mounts.items() if "secret" in volumes[each["name"]]}
    # A file that is mounted by itself (subPath) never changes.
    whole = all(mounts[path]["readOnly"] and "subPath" not in mounts[path] for path in of_secrets)
    return whole and of_secrets == {file.parent for file in files if file}
