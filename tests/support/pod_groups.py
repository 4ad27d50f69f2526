"""The published schemas of PodGroups, as far as the service uses them, written by hand.

Sources: kubernetes-sigs/scheduler-plugins, manifests/coscheduling/crd.yaml; volcano-sh/volcano,
config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml.
"""

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator

_COUNT = {"type": "integer", "format": "int32"}
SPECS: Mapping[str, Mapping[str, Any]] = {
    "scheduling.x-k8s.io/v1alpha1": {"minMember": _COUNT, "scheduleTimeoutSeconds": _COUNT},
    "scheduling.volcano.sh/v1beta1": {
        "minMember": _COUNT,
        "queue": {"type": "string"},
        "priorityClassName": {"type": "string"},
    },
}
"""The fields of `spec` by API."""


def check(manifest: Mapping[str, Any]) -> None:
    """Raise ValidationError unless the PodGroup is valid. Unknown fields are errors."""
    Draft202012Validator(
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["apiVersion", "kind", "metadata", "spec"],
            "properties": {
                "apiVersion": {"const": manifest["apiVersion"]},
                "kind": {"const": "PodGroup"},
                "metadata": {"type": "object"},
                "spec": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": SPECS[manifest["apiVersion"]],
                },
            },
        }
    ).validate(manifest)


def definition(api: str) -> dict[str, Any]:
    """Return the definition of the resource, for a cluster that lacks it."""
    group, version = api.split("/")
    spec = {"type": "object", "properties": dict(SPECS[api])}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"podgroups.{group}",
            # Required for groups of the project itself: scheduler-plugins pull request 50.
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
            },
        },
        "spec": {
            "group": group,
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
