from typing import Any

import pytest

from job_tracker.backends.kubernetes.placement import affinity
from job_tracker.backends.kubernetes.plan import plan
from job_tracker.backends.kubernetes.plugin import KubernetesPlugin
from job_tracker.backends.kubernetes.settings import KubernetesSettings, Topology
from job_tracker.catalog.requested import Placement
from job_tracker.domain.errors import InvalidField, LaunchFailed
from job_tracker.domain.group import Place
from tests.support.catalog import resolved
from tests.support.jobs import job_of, spec
from tests.support.kubernetes_plans import NAME, algorithm

HOSTNAME, RACK, ZONE = "kubernetes.io/hostname", "example.com/rack", "topology.kubernetes.io/zone"
WITH_RACKS = Topology(rack=RACK)
OF_GROUP = {"training-service/job-id": "7"}


def rules(placement: dict[str, Any] | None, topology: Topology = WITH_RACKS) -> dict[str, Any]:
    """Return the rules as {kind: [label, or (label, weight) for a wish]}."""
    made = affinity(Placement.model_validate(placement) if placement else None, topology, OF_GROUP)
    short: dict[str, Any] = {}
    for kind, by_strictness in made.items():
        for strictness, terms in by_strictness.items():
            assert strictness.endswith("DuringSchedulingIgnoredDuringExecution")
            for term in terms:
                inner = term.get("podAffinityTerm", term)
                assert inner["labelSelector"] == {"matchLabels": OF_GROUP}
                label = inner["topologyKey"]
                short.setdefault(kind, []).append((label, term["weight"]) if "weight" in term else label)
    return short


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (None, {"podAffinity": [(HOSTNAME, 100), (RACK, 75), (ZONE, 50)]}),
        ({"near": "rack"}, {"podAffinity": [(HOSTNAME, 100), (RACK, 100), (ZONE, 50)]}),
        (
            {"near": "rack", "strict": True},
            {"podAffinity": [RACK, (HOSTNAME, 100), (ZONE, 50)]},
        ),
        (
            {"near": "zone", "apart": "machine", "strict": True},
            {"podAffinity": [ZONE, (RACK, 1)], "podAntiAffinity": [HOSTNAME]},
        ),
        (
            {"apart": "machine"},
            {"podAffinity": [(RACK, 1), (ZONE, 1)], "podAntiAffinity": [(HOSTNAME, 100)]},
        ),
        ({"apart": "zone", "strict": True}, {"podAntiAffinity": [ZONE]}),
    ],
)
def test_a_placement_becomes_rules_between_the_pods_of_the_group(
    placement: dict[str, Any] | None, expected: dict[str, Any]
) -> None:
    assert rules(placement) == expected


def test_without_a_label_for_racks_the_default_is_that_of_the_first_versions() -> None:
    assert rules(None, Topology()) == {"podAffinity": [(HOSTNAME, 100), (ZONE, 50)]}


def test_a_wish_for_a_place_that_is_no_longer_configured_is_left_out() -> None:
    assert rules({"near": "rack"}, Topology()) == {"podAffinity": [(HOSTNAME, 100), (ZONE, 50)]}


@pytest.mark.parametrize("side", ["near", "apart"])
def test_a_required_place_that_is_no_longer_configured_fails_the_launch(side: str) -> None:
    with pytest.raises(
        LaunchFailed, match=r"requires a rack, but kubernetes\.topology\.rack is not set\. Set"
    ):
        rules({side: "rack", "strict": True}, Topology())


@pytest.mark.parametrize("side", ["near", "apart"])
def test_a_request_can_name_only_places_with_a_label(side: str) -> None:
    with pytest.raises(InvalidField) as caught:
        KubernetesSettings().check({"placement": {side: "rack"}})
    assert str(caught.value) == (
        f"pod_options.placement.{side}: 'rack' is not allowed: the configuration names no label of nodes for "
        "it (kubernetes.topology.rack); allowed: machine, zone"
    )
    options = KubernetesSettings(topology=WITH_RACKS).check({"placement": {side: "rack"}})
    assert options.placement is not None
    assert getattr(options.placement, side) is Place.RACK


def test_the_request_overrides_the_algorithm_and_a_single_pod_has_no_rules() -> None:
    settings = KubernetesSettings(topology=WITH_RACKS)
    algorithms = {NAME: algorithm(placement={"near": "machine", "strict": True})}

    def affinity_of(instances: int, **requested: Any) -> Any:
        settings.check(requested)
        the_job = job_of(spec(algorithm=NAME, instances=instances, pod_options=requested))
        planned = plan(resolved(the_job, algorithms, "kubernetes", KubernetesPlugin(settings)), settings)
        return [pod["spec"].get("affinity") for pod in planned.pods]

    [of_master, of_worker] = affinity_of(2)
    assert of_master == of_worker
    [required] = of_master["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["topologyKey"] == HOSTNAME
    [of_master, _] = affinity_of(2, placement={"apart": "machine"})
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in of_master["podAffinity"]
    assert affinity_of(1) == [None]
