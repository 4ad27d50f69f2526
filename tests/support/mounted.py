"""Algorithms that train in containers and pods with this machine's software, which is mounted into them.

Complete images, as users have them, take minutes to build and to load; `python -m benchmarks.frameworks`
trains in such images.
"""

import json
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_SHIPPED = ROOT / "trainer_images" / "algorithms.toml"
_VENV = Path(sys.prefix)
_PYTHON = Path(sys.base_prefix)
"""The Python from which virtual environments are made, and to which they have links."""


def on_pods(image: str, storage: Path) -> dict[str, Any]:
    """Return the algorithms of trainer_images for pods on this machine."""
    return {
        name: {**one, "kubernetes": in_a_pod(image, storage, command)} for name, one, command in _algorithms()
    }


def in_containers(image: str, storage: Path) -> dict[str, Any]:
    """Return the algorithms of trainer_images for containers on this machine."""
    return {
        name: {**one, "docker": _in_a_container(image, storage, command)}
        for name, one, command in _algorithms()
    }


def let_others_write(storage: Path) -> None:
    """Make the folders of models and checkpoints, to which all users may write: containers run as another
    user.
    """
    for folder in ("models", "checkpoints"):
        (storage / folder).mkdir()
        (storage / folder).chmod(0o777)


def toml_of(settings: Mapping[str, Any]) -> str:
    """Return settings as TOML."""
    return "\n".join(f"{name} = {_value(value)}" for name, value in settings.items())


def in_a_pod(image: str, storage: Path, command: Sequence[str], *more: Path) -> dict[str, Any]:
    """Return the pod settings of a command that needs this machine's software and `more` folders."""
    mounts = [(f"m{number}", *mount) for number, mount in enumerate(_mounts(storage, *more))]
    container = {
        "name": "training",
        "volumeMounts": [{"name": n, "mountPath": path, "readOnly": ro} for n, path, ro in mounts],
    }
    volumes = [{"name": n, "hostPath": {"path": path}} for n, path, _ in mounts]
    template = {"spec": {"volumes": volumes, "containers": [container]}}
    return {"image": image, "command": [*command], "pod_template": template}


def _algorithms() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """Yield the name of each algorithm, its settings that are the same on every engine, and its command."""
    for name, algorithm in tomllib.loads(_SHIPPED.read_text())["algorithms"].items():
        process = algorithm.pop("process")
        venv = ROOT / process.get("virtual_environment", _VENV)
        algorithm["environment"] = {
            "PATH": f"{venv}/bin{os.pathsep}{os.defpath}",
            "PYTHONPATH": str(ROOT / "trainer_images"),
            "OMP_NUM_THREADS": "1",
        }
        for engine in ("docker", "kubernetes"):
            algorithm.pop(engine, None)
        yield name, algorithm, process["command"]


def _mounts(storage: Path, *more: Path) -> Iterator[tuple[str, bool]]:
    """Yield folders of this machine, each with whether it is read-only."""
    for path in dict.fromkeys((Path("/usr"), _PYTHON, ROOT / "trainer_images", _VENV, *more)):
        yield str(path), True
    yield str(storage), False


def _in_a_container(image: str, storage: Path, command: Sequence[str]) -> dict[str, Any]:
    volumes = [{"source": path, "mount_path": path, "read_only": ro} for path, ro in _mounts(storage)]
    return {"image": image, "command": command, "volumes": volumes}


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)
