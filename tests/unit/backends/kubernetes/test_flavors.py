"""Flavors of nodes: which nodes they have, and what their pods get."""

from dataclasses import replace
from typing import Any

import pytest

from job_tracker.backends.kubernetes.flavors import NodeFlavor, flavor_of
from job_tracker.backends.kubernetes.plan import KubernetesPlan, plan
from job_tracker.backends.kubernetes.plugin import KubernetesPlugin
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.domain.allocation import Allocation
from job_tracker.domain.errors import LaunchFailed
from job_tracker.scheduling.gangs import gang_of
from job_tracker.scheduling.model import Flavor, Queue, Snapshot
from job_tracker.scheduling.planner import plan as make_plan
from job_tracker.scheduling.waiting import WaitingGangs
from tests.support import schemas
from tests.support.catalog import resolved
from tests.support.jobs import job, spec
from tests.support.kubernetes_plans import NAME, algorithm, variables_of

GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}
A100 = {"node_selector": {"gpu": "a100"}, "tolerations": [TOLERATION]}


def flavor(**fields: Any) -> NodeFlavor:
    return NodeFlavor.model_validate(fields)


def node(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": labels}}


def planned(allocation: Allocation, instances: int = 2, **options: Any) -> KubernetesPlan:
    settings = KubernetesSettings.model_validate({"namespace": "training", "flavors": {"a100": A100}})
    made = replace(job(algorithm=NAME, instances=instances), allocation=allocation)
    plugin = KubernetesPlugin(settings)
    return plan(resolved(made, {NAME: algorithm(**options)}, "kubernetes", plugin), settings)


def terms(pod: Any) -> list[Any]:
    of_nodes = pod["spec"]["affinity"]["nodeAffinity"]
    found: list[Any] = of_nodes["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return found


def on(name: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [name]}


def test_a_node_belongs_to_the_first_flavor_whose_labels_it_has() -> None:
    flavors = {"a100": flavor(node_selector={"gpu": "a100"}), "rest": flavor()}
    assert flavor_of(node(gpu="a100", disk="ssd"), flavors) == "a100"
    assert flavor_of(node(gpu="t4"), flavors) == "rest"
    assert flavor_of(node(), {"a100": flavors["a100"]}) is None


@pytest.mark.parametrize(
    ("toleration", "taint", "expected"),
    [
        (None, GPU_TAINT, False),
        (None, {**GPU_TAINT, "effect": "PreferNoSchedule"}, True),
        (TOLERATION, GPU_TAINT, True),
        ({"operator": "Exists"}, GPU_TAINT, True),
        ({"key": "nvidia.com/gpu", "value": "present"}, GPU_TAINT, True),
        ({"key": "nvidia.com/gpu", "value": "absent"}, GPU_TAINT, False),
        ({**TOLERATION, "effect": "NoExecute"}, GPU_TAINT, False),
        ({"key": "other", "operator": "Exists"}, GPU_TAINT, False),
        ({"key": "k"}, {"key": "k", "effect": "NoExecute"}, True),
    ],
)
def test_pods_start_only_on_nodes_whose_taints_the_flavor_tolerates(
    toleration: Any, taint: dict[str, str], expected: bool
) -> None:
    made = flavor(tolerations=[toleration] if toleration else [])
    assert made.tolerates([taint]) == expected


def test_pods_get_the_selector_and_the_tolerations_of_their_flavor() -> None:
    pods = planned(Allocation(flavor="a100"), node_selector={"disk": "ssd"}, tolerations=[TOLERATION]).pods
    for pod in pods:
        assert pod["spec"]["nodeSelector"] == {"disk": "ssd", "gpu": "a100"}
        assert pod["spec"]["tolerations"] == [TOLERATION]
        assert "podAffinity" in pod["spec"]["affinity"]


def test_each_pod_is_bound_to_its_machine() -> None:
    pods = planned(Allocation(flavor="a100", nodes=("n1", "n2"))).pods
    assert [terms(pod) for pod in pods] == [[{"matchFields": [on("n1")]}], [{"matchFields": [on("n2")]}]]
    assert all(pod["spec"]["affinity"].keys() == {"nodeAffinity"} for pod in pods)
    assert [pod["metadata"]["annotations"]["training-service/node"] for pod in pods] == ["n1", "n2"]
    assert pods[0]["metadata"]["annotations"]["training-service/flavor"] == "a100"


def test_a_template_cannot_take_a_pod_off_its_machine() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    required = {"nodeSelectorTerms": [term, {"matchFields": [on("other")]}]}
    wish = [{"weight": 1, "preference": term}]
    of_nodes = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": wish,
    }
    template = {"spec": {"affinity": {"nodeAffinity": of_nodes}}}
    (pod,) = planned(Allocation(flavor="a100", nodes=("n1",)), 1, pod_template=template).pods
    assert terms(pod) == [{**term, "matchFields": [on("n1")]}, {"matchFields": [on("other"), on("n1")]}]
    kept = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert kept == wish


def test_an_unknown_flavor_adds_nothing() -> None:
    pods = planned(Allocation(flavor="default")).pods
    assert "nodeSelector" not in pods[0]["spec"]
    assert pods == planned(Allocation()).pods
    assert "training-service/node" not in pods[0]["metadata"]["annotations"]


def test_a_job_that_asks_for_other_nodes_than_its_flavor_has_cannot_be_launched() -> None:
    with pytest.raises(LaunchFailed, match="gpu=t4, and its flavor has nodes with gpu=a100"):
        planned(Allocation(flavor="a100"), node_selector={"gpu": "t4"})


def test_an_elastic_allocation_has_as_many_pods_as_trainers() -> None:
    settings = KubernetesSettings.model_validate({"flavors": {"a100": A100}})
    whole = resolved(
        job(algorithm=NAME, instances=4), {NAME: algorithm()}, "kubernetes", KubernetesPlugin(settings)
    )
    allocated = replace(whole, allocation=Allocation(flavor="a100", trainers=2, nodes=("n1", "n2")))
    pods = plan(allocated.as_allocated, settings).pods
    assert [pod["metadata"]["annotations"]["training-service/node"] for pod in pods] == ["n1", "n2"]
    assert [variables_of(pod)["WORLD_SIZE"] for pod in pods] == ["2", "2"]


@pytest.mark.parametrize("version", schemas.VERSIONS)
def test_bound_pods_are_valid(version: str) -> None:
    for pod in planned(Allocation(flavor="a100", nodes=("n1", "n2"))).pods:
        schemas.check(pod, version)


def test_a_job_that_asks_for_a_flavor_runs_on_its_nodes() -> None:
    gang = gang_of(1, spec(flavor="a100"), None)
    flavors = [Flavor(name=name, capacity={"instances": 8}) for name in ("first", "a100")]
    queues = {"default": Queue(name="default")}
    seen = Snapshot(flavors=flavors, queues=queues, waiting=WaitingGangs([gang]), running={})

    [admitted] = make_plan(seen, 0.0).admitted

    (pod,) = planned(admitted.allocation, 1).pods
    assert pod["spec"]["nodeSelector"] == {"gpu": "a100"}
