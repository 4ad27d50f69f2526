"""The pods that may stay when their group is stopped: those with no process left."""

from typing import Any

import pytest

from job_tracker.backends.kubernetes.groups import has_ended
from tests.support.pods import DELETED, RUNNING, container, pod, terminated, waiting

DONE = terminated(0, "Completed")
FAILED_INIT = [container(terminated(1), "prepare")]

ENDED = {
    "success": pod("Succeeded", container(DONE)),
    "failure": pod("Failed", container(terminated(3))),
    "together with its sidecar": pod("Succeeded", container(DONE), container(DONE, "sidecar")),
    "in an init container": pod(
        "Failed", container(waiting("PodInitializing")), initContainerStatuses=FAILED_INIT
    ),
    "evicted, with an exit code": pod("Failed", container(terminated(137)), reason="Evicted"),
}
NOT_ENDED = {
    "running": pod("Running", container(RUNNING)),
    "waiting": pod("Pending", container(waiting("ImagePullBackOff"))),
    "not on a node": pod("Pending"),
    "with a sidecar that runs": pod("Running", container(DONE), container(RUNNING, "sidecar")),
    "marked as failed by an early kubelet before it ends": pod(
        "Failed", container(RUNNING), reason="DeadlineExceeded"
    ),
    "evicted by an early kubelet without statuses": pod("Failed", reason="Evicted"),
    "with a debugger in it": pod(
        "Succeeded", container(DONE), ephemeralContainerStatuses=[container(RUNNING, "debugger")]
    ),
    "being deleted": pod("Failed", container(terminated(3)), metadata=DELETED),
}


@pytest.mark.parametrize("the_pod", ENDED.values(), ids=ENDED)
def test_a_pod_has_ended(the_pod: dict[str, Any]) -> None:
    assert has_ended(the_pod)


@pytest.mark.parametrize("the_pod", NOT_ENDED.values(), ids=NOT_ENDED)
def test_a_pod_has_not_ended(the_pod: dict[str, Any]) -> None:
    assert not has_ended(the_pod)
