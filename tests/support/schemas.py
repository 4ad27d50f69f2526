"""The published schemas of Kubernetes, of every version in the package kubernetes-validate."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

_FOLDER = files("kubernetes_validate") / "kubernetes-json-schema"
_SUFFIX = "-local-strict"  # unknown fields are errors

VERSIONS = sorted(
    (each.name.removesuffix(_SUFFIX) for each in _FOLDER.iterdir() if each.name.endswith(_SUFFIX)),
    key=lambda version: [int(part) for part in version.removeprefix("v").split(".")],
)


def check(manifest: Mapping[str, Any], version: str) -> None:
    """Raise ValidationError unless the object is valid in that version's API."""
    _validator(version, manifest["apiVersion"], manifest["kind"]).validate(manifest)


@cache  # kubernetes_validate.validate reads the large files at every call
def _validator(version: str, api: str, kind: str) -> Draft202012Validator:
    folder = _FOLDER / f"{version}{_SUFFIX}"
    # File names have the first word of a group: rolebinding-rbac-v1.json is for rbac.authorization.k8s.io/v1.
    group, _, of_group = api.rpartition("/")
    name = f"{kind}-{group.partition('.')[0]}-{of_group}" if group else f"{kind}-{of_group}"
    schema = json.loads((folder / f"{name.lower()}.json").read_text())
    registry: Registry[Any] = _definitions(version) @ Registry()
    return Draft202012Validator(schema, registry=registry)


@cache
def _definitions(version: str) -> Resource[Any]:
    return Resource.from_contents(json.loads((_FOLDER / f"{version}{_SUFFIX}/_definitions.json").read_text()))
