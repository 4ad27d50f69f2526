"""The labels and annotations of a group's pods for Kueue's pod integration (kueue.py has the sources)."""

from dataclasses import replace
from typing import Any

from job_tracker.backends.kubernetes.kueue import KueueMarks
from job_tracker.backends.kubernetes.plan import KubernetesPlan, plan
from job_tracker.backends.kubernetes.plugin import KubernetesPlugin
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from tests.support import schemas
from tests.support.catalog import resolved
from tests.support.jobs import job
from tests.support.kubernetes_plans import algorithm

SETTINGS = KubernetesSettings(namespace="training", instance="ours")
MARKS = KueueMarks({"vision": "team-vision"}, {100: "urgent"})


def planned(
    instances: int = 3, attempt: int = 1, template: dict[str, Any] | None = None, **changes: Any
) -> KubernetesPlan:
    asked = job(instances=instances, attempt=attempt)
    asked = replace(asked, spec=replace(asked.spec, **changes))
    of = {"program": algorithm(pod_template=template or {})}
    return plan(resolved(asked, of, "kubernetes", KubernetesPlugin(SETTINGS)), SETTINGS, marks=MARKS)


def test_each_attempt_is_a_pod_group_of_its_own() -> None:
    for attempt, name in ((1, "program-1"), (2, "program-1-r1")):
        found = planned(attempt=attempt)
        assert found.pod_group is None, "Kueue makes the Workload"
        for pod in found.pods:
            assert pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] == name
            assert pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "3"
            assert "kueue.x-k8s.io/retriable-in-group" not in pod["metadata"]["annotations"]
            assert "schedulerName" not in pod["spec"]


def test_a_single_instance_is_a_group_of_one() -> None:
    (pod,) = planned(1).pods
    assert pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "1"


def test_no_pod_starts_before_its_gate_is_removed() -> None:
    template = {"spec": {"schedulingGates": [{"name": "example.com/license"}]}}
    gates = [{"name": "example.com/license"}, {"name": "kueue.x-k8s.io/admission"}]
    assert [pod["spec"]["schedulingGates"] for pod in planned(template=template).pods] == [gates] * 3


def test_a_queue_is_the_local_queue_of_its_name_or_as_configured() -> None:
    for queue, expected in (("speech", "speech"), ("vision", "team-vision")):
        (pod,) = planned(1, queue=queue).pods
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == expected


def test_a_priority_is_a_workload_priority_class_if_configured() -> None:
    key = "kueue.x-k8s.io/priority-class"
    assert planned(1, priority=100).pods[0]["metadata"]["labels"][key] == "urgent"
    assert key not in planned(1, priority=0).pods[0]["metadata"]["labels"]


def test_a_template_cannot_name_another_queue_or_group() -> None:
    """In Kueue, an annotation of a queue wins over a label. Other keys would bypass quotas and priorities."""
    others = {
        f"kueue.x-k8s.io/{name}": "other"
        for name in ("queue-name", "pod-group-name", "pod-group-serving", "role-hash", "priority-class")
    }
    wish = {"kueue.x-k8s.io/podset-preferred-topology": "rack"}
    template = {"metadata": {"labels": others, "annotations": {**others, **wish}}}
    metadata = planned(template=template).pods[0]["metadata"]
    assert "other" not in {*metadata["labels"].values(), *metadata["annotations"].values()}
    assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    assert metadata["annotations"].items() >= wish.items()


def test_the_pods_are_valid_by_the_published_schemas() -> None:
    for pod in planned().pods:
        schemas.check(pod, schemas.VERSIONS[-1])
