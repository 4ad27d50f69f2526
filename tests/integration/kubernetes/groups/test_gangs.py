"""A group with a PodGroup, on a cluster that knows PodGroups, but has no gang scheduler: all pods start."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from job_tracker.domain.group import Phase
from tests.support import pod_groups
from tests.support.backends import KubernetesGroups, started
from tests.support.jobs import job
from tests.support.patience import PATIENCE
from tests.support.place import Place

RESOURCE = "podgroups.scheduling.x-k8s.io"


@pytest.fixture
def defined(place: Place) -> Iterator[None]:
    """The cluster knows PodGroups."""
    if place.cluster.provider == "given":
        pytest.skip("tests define no resources in a given cluster (KUBECONFIG)")
    place.cluster.apply("default", pod_groups.definition("scheduling.x-k8s.io/v1alpha1"))
    place.cluster.kubectl("wait", "--for=condition=Established", f"crd/{RESOURCE}")
    yield
    place.cluster.kubectl("delete", "crd", RESOURCE, "--wait=false")


@pytest.mark.usefixtures("defined")
async def test_the_cluster_accepts_a_pod_group_and_removes_it_with_its_master(
    world: KubernetesGroups, place: Place
) -> None:
    backend, asked = (
        world.open(gang={"scheduler": "scheduler-plugins"}),
        job({"RUN_SECONDS": "forever"}, instances=2),
    )
    seen = await started(backend, asked)
    assert [rank.phase for rank in seen.statuses] == [Phase.RUNNING] * 2
    found = place.cluster.get(place.namespace, RESOURCE, "program-1")
    assert found["spec"] == {"minMember": 2}
    [owner] = found["metadata"]["ownerReferences"]
    assert owner["uid"] == place.uid("pod", "program-1-master")
    place.kubectl("delete", "pod", "program-1-master", "--force", "--grace-period=0")
    async with asyncio.timeout(PATIENCE):
        while place.kubectl("get", RESOURCE, "-o", "name"):
            await asyncio.sleep(0.1)
    await backend.stop(asked.group, timedelta(seconds=1))
    assert place.left() == []
