"""The labels and annotations of a group's pods for the cluster's own gang scheduler."""

from typing import Any

import pytest
from pydantic import ValidationError

from job_tracker.backends.kubernetes.gangs import GangScheduler
from job_tracker.backends.kubernetes.plan import KubernetesPlan, plan
from job_tracker.backends.kubernetes.plugin import KubernetesPlugin
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from tests.support import pod_groups, schemas
from tests.support.catalog import resolved
from tests.support.jobs import job
from tests.support.kubernetes_plans import algorithm

BOTH = pytest.mark.parametrize("scheduler", ["scheduler-plugins", "volcano"])


def planned(instances: int = 3, **gang: Any) -> KubernetesPlan:
    settings = KubernetesSettings(namespace="training", instance="ours", gang=GangScheduler(**gang))
    asked = job(instances=instances)
    return plan(resolved(asked, {"program": algorithm()}, "kubernetes", KubernetesPlugin(settings)), settings)


def test_without_a_gang_scheduler_pods_are_as_before() -> None:
    found = planned()
    assert found.pod_group is None
    for pod in found.pods:
        assert "schedulerName" not in pod["spec"]


@BOTH
def test_a_single_instance_is_no_gang(scheduler: str) -> None:
    assert planned(1, scheduler=scheduler) == planned(1)


def test_pods_name_their_group_for_scheduler_plugins() -> None:
    found = planned(scheduler="scheduler-plugins", scheduler_name="gangs")
    for pod in found.pods:
        assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "program-1"
        assert pod["spec"]["schedulerName"] == "gangs"
    assert "schedulerName" not in planned(scheduler="scheduler-plugins").pods[0]["spec"]


def test_pods_name_their_group_for_volcano() -> None:
    found = planned(scheduler="volcano", queue="training")
    for pod in found.pods:
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "program-1"
        assert pod["spec"]["schedulerName"] == "volcano"
    assert found.pod_group is not None
    assert found.pod_group["spec"] == {"minMember": 3, "queue": "training"}


@BOTH
def test_the_objects_are_valid_by_the_published_schemas(scheduler: str) -> None:
    found = planned(scheduler=scheduler, scheduler_name="gangs")
    assert found.pod_group is not None
    assert found.pod_group["metadata"]["name"] == "program-1"
    assert found.pod_group["spec"]["minMember"] == len(found.pods)
    pod_groups.check(found.pod_group)
    for version in (schemas.VERSIONS[0], schemas.VERSIONS[-1]):
        for pod in found.pods:
            schemas.check(pod, version)


@pytest.mark.parametrize(
    ("gang", "message"),
    [
        ({"scheduler": "scheduler-plugins", "queue": "a"}, "queue: a is not allowed"),
        ({"queue": "a"}, "queue: a is not allowed"),
        ({"scheduler_name": "a"}, "scheduler_name: a is not allowed"),
        ({"scheduler": "slurm"}, "'scheduler-plugins' or 'volcano'"),
    ],
)
def test_settings_that_have_no_effect_are_refused(gang: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GangScheduler(**gang)
