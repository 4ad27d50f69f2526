"""The placement of a group's pods: their affinity to each other, and to the chosen nodes."""

from collections.abc import Mapping
from typing import Any

from job_tracker.backends.kubernetes.diagnosis import no_label
from job_tracker.backends.kubernetes.settings import Topology
from job_tracker.catalog.requested import Placement
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import Place

_WEIGHT = {Place.MACHINE: 100, Place.RACK: 75, Place.ZONE: 50}
"""The weight of each preference, from 1 to 100. Pods on the same machine are also in the same rack and zone,
so all three weights are added for them."""
_STRONGEST = 100
_WEAKEST = 1
"""The weight of the wish to share a place of a larger kind, if the request asks for pods to be apart.

For example, pods on separate machines should still share a rack.

Kubernetes counts this wish once for each pod of the group that is already in the place. With a larger weight,
a few such pods could outweigh the wish to be apart.
"""
_IF_POSSIBLE = "IgnoredDuringExecution"


def bound(affinity: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Return the affinity of a pod, extended so that the pod runs on this node only.

    The terms of a node affinity are alternatives, so the node is added to each term.
    """
    of_nodes = affinity.get("nodeAffinity") or {}
    required = of_nodes.get(f"requiredDuringScheduling{_IF_POSSIBLE}") or {}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [
        {**term, "matchFields": [*term.get("matchFields", ()), field]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    return {
        **affinity,
        "nodeAffinity": {
            **of_nodes,
            f"requiredDuringScheduling{_IF_POSSIBLE}": {**required, "nodeSelectorTerms": terms},
        },
    }


def affinity(placement: Placement | None, topology: Topology, of_group: Mapping[str, str]) -> dict[str, Any]:
    """Return the affinity of each pod of a group whose pods have the labels `of_group`.

    All ranks exchange gradients with each other, so without a placement the pods prefer one machine, then one
    rack, then one zone. Raises LaunchFailed if the job requires a kind of place for which the configuration
    no longer has a label.
    """
    selector = {"matchLabels": dict(of_group)}
    near, apart, strict = (
        (placement.near, placement.apart, placement.strict) if placement else (None, None, False)
    )
    labels = topology.labels
    for place in (near, apart):
        if strict and place is not None and place not in labels:
            raise LaunchFailed(no_label(place))

    def term(place: Place) -> dict[str, Any]:
        return {"labelSelector": selector, "topologyKey": labels[place]}

    def wish(place: Place, weight: int) -> dict[str, Any]:
        return {"weight": weight, "podAffinityTerm": term(place)}

    required = [term(near)] if near and strict else []
    wishes = [
        wish(place, _STRONGEST if place is near else _WEAKEST if apart else _WEIGHT[place])
        for place in labels
        if not (place is near and strict) and (apart is None or place in apart.larger)
    ]
    away: dict[str, Any] = {}
    if apart is not None and apart in labels:
        away = (
            {f"requiredDuringScheduling{_IF_POSSIBLE}": [term(apart)]}
            if strict
            else {f"preferredDuringScheduling{_IF_POSSIBLE}": [wish(apart, _STRONGEST)]}
        )
    together = {
        **({f"requiredDuringScheduling{_IF_POSSIBLE}": required} if required else {}),
        **({f"preferredDuringScheduling{_IF_POSSIBLE}": wishes} if wishes else {}),
    }
    return {
        **({"podAffinity": together} if together else {}),
        **({"podAntiAffinity": away} if away else {}),
    }
