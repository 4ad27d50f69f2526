"""Kinds of nodes: the labels of the nodes, and the tolerations that pods need to run on them."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.catalog.requested import Toleration
from job_tracker.catalog.syntax import Key, LabelValue
from job_tracker.common.config import Config
from job_tracker.common.printable import quoted
from job_tracker.domain import naming

_KEEP_PODS_AWAY = frozenset({"NoSchedule", "NoExecute"})


def _flavor(name: str) -> str:
    if not naming.is_project(name):
        raise ValueError(f"{quoted(name)} is not the name of a flavor: {naming.PROJECT_RULE}")
    return name


FlavorName = Annotated[str, AfterValidator(_flavor)]


class NodeFlavor(Config):
    """A kind of nodes, on which the instances of a job run."""

    node_selector: dict[Key, LabelValue] = Field(
        default={}, max_length=64, description="Labels of its nodes. Empty: all nodes."
    )
    tolerations: tuple[Toleration, ...] = Field(
        default=(),
        max_length=64,
        description="Taints of the flavor's nodes that its pods tolerate. Nodes with other taints that keep "
        "pods away are not used.",
    )

    def has(self, node: Manifest) -> bool:
        """Return whether the node has the flavor's labels."""
        labels = node["metadata"].get("labels") or {}
        return all(labels.get(key) == value for key, value in self.node_selector.items())

    def tolerates(self, taints: list[Mapping[str, Any]]) -> bool:
        """Return whether pods of this flavor may start on a node with these taints."""
        return all(
            taint.get("effect") not in _KEEP_PODS_AWAY
            or any(_tolerates(each, taint) for each in self.tolerations)
            for taint in taints
        )


def _tolerates(toleration: Toleration, taint: Mapping[str, Any]) -> bool:
    if toleration.effect is not None and toleration.effect != taint.get("effect"):
        return False
    if toleration.key is not None and toleration.key != taint.get("key"):
        return False
    return toleration.operator == "Exists" or toleration.value == (taint.get("value") or "")


def flavor_of(node: Manifest, flavors: Mapping[str, NodeFlavor]) -> str | None:
    """Return the first flavor to which the node belongs, so that no node counts twice; None if there is none.

    Taints do not matter here, because they come and go.
    """
    return next((name for name, flavor in flavors.items() if flavor.has(node)), None)
