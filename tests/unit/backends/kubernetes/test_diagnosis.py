"""Every way in which a rank fails on a cluster: a row for each thing that an API server says of it."""

from datetime import timedelta
from typing import Any

import pytest

from job_tracker.backends.kubernetes import diagnosis
from job_tracker.backends.kubernetes.status import observe_rank
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.group import Phase, RankStatus
from tests.support.pods import (
    DELETED,
    LATE,
    PULL,
    RUNNING,
    SOON,
    T0,
    at,
    condition,
    container,
    disrupted,
    pod,
    starting,
    terminated,
    waiting,
)

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1\nValueError: x'
NOT_FOUND = 'exec: "nope": executable file not found in $PATH: unknown'
FAILED = {
    # name: (pod, category, exit code, retryable, evidence)
    "image that is not there": (
        starting(waiting("ImagePullBackOff", PULL)),
        *(Category.IMAGE_PULL_FAILED, None, False, PULL),
    ),
    "image that cannot be pulled, between two tries": (
        starting(waiting("ErrImagePull", "rpc error: code = NotFound")),
        *(Category.IMAGE_PULL_FAILED, None, False, "rpc error: code = NotFound"),
    ),
    "image that may not be pulled": (
        starting(
            waiting("ErrImageNeverPull", 'Container image "a:1" is not present with pull policy of Never')
        ),
        *(Category.IMAGE_PULL_FAILED, None, False, "pull policy of Never"),
    ),
    "image with no name": (
        starting(waiting("InvalidImageName", 'Failed to apply default image tag "A:B:C"')),
        *(Category.INVALID_IMAGE, None, False, "A:B:C"),
    ),
    "secret that is missing": (
        starting(waiting("CreateContainerConfigError", 'secret "storage" not found')),
        *(Category.CONTAINER_CONFIG, None, False, 'secret "storage" not found'),
    ),
    "image that runs as root": (
        starting(
            waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")
        ),
        *(Category.CONTAINER_CONFIG, None, False, "runAsNonRoot"),
    ),
    "container that cannot be made": (
        starting(waiting("CreateContainerError", "context deadline exceeded")),
        *(Category.CONTAINER_NOT_CREATED, None, False, "context deadline exceeded"),
    ),
    "container that cannot be run": (
        starting(waiting("RunContainerError", "failed to create shim task")),
        *(Category.CONTAINER_NOT_CREATED, None, False, "failed to create shim task"),
    ),
    "init container without an image": (
        starting(
            waiting("PodInitializing"),
            initContainerStatuses=[container(waiting("ErrImagePull", "no such host"), "fetch")],
        ),
        *(Category.IMAGE_PULL_FAILED, None, False, "no such host"),
    ),
    "init container that failed": (
        pod(
            "Failed",
            container(waiting("PodInitializing")),
            initContainerStatuses=[container(terminated(3, message="no disk"), "fetch")],
        ),
        *(Category.INIT_FAILED, None, False, "exit code 3: no disk"),
    ),
    "crash": (
        pod("Failed", container(terminated(1, message=TRACEBACK))),
        *(Category.CRASHED, 1, False, "ValueError: x"),
    ),
    "crash beside a sidecar that runs on": (
        pod("Running", container(terminated(1)), container(RUNNING, "mesh")),
        *(Category.CRASHED, 1, False, ""),
    ),
    "crash, and deleted afterwards": (
        pod("Failed", container(terminated(1, finished=39)), metadata=DELETED),
        *(Category.CRASHED, 1, False, ""),
    ),
    "crash in native code": (
        pod("Failed", container(terminated(139))),
        *(Category.CRASHED, 139, False, ""),
    ),
    "crash that says what it wanted": (
        pod("Failed", container(terminated(1, message="torch.OutOfMemoryError: CUDA out of memory."))),
        *(Category.OUT_OF_MEMORY, 1, False, "CUDA out of memory"),
    ),
    "killed over its limit of memory": (
        pod("Failed", container(terminated(137, "OOMKilled"))),
        *(Category.OUT_OF_MEMORY, 137, False, ""),
    ),
    "killed by nobody knows whom": (
        pod("Failed", container(terminated(137))),
        *(Category.KILLED, 137, True, ""),
    ),
    "signal that only Docker gives": (
        pod("Failed", container({"terminated": {"exitCode": 0, "signal": 9, "finishedAt": at(3)}})),
        *(Category.KILLED, 137, True, ""),
    ),
    "program that is not there, with containerd": (
        pod("Failed", container(terminated(128, "StartError", NOT_FOUND))),
        *(Category.COMMAND_NOT_FOUND, 128, False, NOT_FOUND),
    ),
    "program that is not there, with Docker": (
        pod("Failed", container(terminated(127, "ContainerCannotRun", NOT_FOUND))),
        *(Category.COMMAND_NOT_FOUND, 127, False, NOT_FOUND),
    ),
    "program that may not be run": (
        pod("Failed", container(terminated(126, "ContainerCannotRun", "permission denied: unknown"))),
        *(Category.COMMAND_NOT_EXECUTABLE, 126, False, "permission denied"),
    ),
    "program for another processor": (
        pod("Failed", container(terminated(128, "StartError", "exec format error: unknown"))),
        *(Category.COMMAND_NOT_EXECUTABLE, 128, False, "exec format error"),
    ),
    "node restarted": (
        pod("Failed", container(terminated(255, "Unknown"))),
        *(Category.NODE_LOST, 255, True, ""),
    ),
    "container that its node forgot": (
        pod(
            "Failed",
            container(
                {
                    "terminated": {
                        **{"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None},
                        **{"finishedAt": None, "message": "The container could not be located"},
                    }
                }
            ),
        ),
        *(Category.NODE_LOST, 137, True, "could not be located"),
    ),
    "evicted for want of memory, up to 1.25": (
        pod("Failed", reason="Evicted", message="The node was low on resource: memory. ", conditions=[]),
        *(Category.EVICTED, None, True, "low on resource: memory"),
    ),
    "evicted for want of disk": (
        pod(
            "Failed",
            container(terminated(137, finished=41)),
            conditions=disrupted("TerminationByKubelet", "The node was low on resource: ephemeral-storage."),
            reason="Evicted",
            message="The node was low on resource: ephemeral-storage. ",
        ),
        *(Category.EVICTED, 137, True, "low on resource: ephemeral-storage"),
    ),
    "evicted, as it filled its shared memory": (
        pod("Failed", reason="Evicted", message='Usage of EmptyDir volume "shm" exceeds the limit "1Gi". '),
        *(Category.EVICTED, None, False, 'volume "shm" exceeds the limit'),
    ),
    "drained": (
        pod(
            "Running",
            container(RUNNING),
            conditions=disrupted("EvictionByEvictionAPI", "Eviction API: evicting"),
            metadata=DELETED,
        ),
        *(Category.EVICTED, None, True, "Eviction API: evicting"),
    ),
    "drained, and it ended by itself on being told": (
        pod(
            "Succeeded",
            container(terminated(0, "Completed", finished=42)),
            conditions=disrupted("EvictionByEvictionAPI", "Eviction API: evicting"),
            metadata=DELETED,
        ),
        *(Category.EVICTED, 0, True, "Eviction API: evicting"),
    ),
    "preempted by the scheduler": (
        pod(
            "Running",
            container(RUNNING),
            conditions=disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate"),
            metadata=DELETED,
        ),
        *(Category.PREEMPTED, None, True, "preempting to accommodate"),
    ),
    "preempted by the kubelet": (
        pod("Failed", reason="Preempting", message="Preempted in order to admit critical pod"),
        *(Category.PREEMPTED, None, True, "critical pod"),
    ),
    "node that was unreachable for too long": (
        pod(
            "Running",
            container(RUNNING),
            conditions=disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
            metadata=DELETED,
        ),
        *(Category.NODE_LOST, None, True, "NoExecute taint"),
    ),
    "node that was unreachable for too long, up to 1.25": (
        pod(
            "Running",
            container(RUNNING),
            conditions=[condition("Ready", "False"), condition("ContainersReady", "True")],
            metadata=DELETED,
        ),
        *(Category.NODE_LOST, None, True, ""),
    ),
    "node lost, as its controller says": (
        pod(
            "Running",
            container(RUNNING),
            metadata=DELETED,
            reason="NodeLost",
            message="Node n is unresponsive",
        ),
        *(Category.NODE_LOST, None, True, "Node n is unresponsive"),
    ),
    "node lost, in the phase": (
        pod("Unknown", container(RUNNING), conditions=[condition("Ready", "Unknown")]),
        *(Category.NODE_LOST, None, True, ""),
    ),
    "node deleted": (
        pod(
            "Failed",
            container(RUNNING),
            conditions=disrupted("DeletionByPodGC", "PodGC: node no longer exists"),
        ),
        *(Category.NODE_LOST, None, True, "node no longer exists"),
    ),
    "node shut down": (
        pod(
            "Failed",
            container(terminated(143, finished=41)),
            conditions=disrupted(
                "TerminationByKubelet", "Pod was terminated in response to imminent node shut"
            ),
            reason="Terminated",
            message="Pod was terminated in response to imminent node shutdown.",
        ),
        *(Category.NODE_LOST, 143, True, "imminent node shutdown"),
    ),
    "disruption that nobody has heard of": (
        pod("Running", container(RUNNING), conditions=disrupted("DeletionByGodot", "he came")),
        *(Category.KILLED, None, True, "DeletionByGodot: he came"),
    ),
    "refused by its node": (
        pod("Failed", reason="OutOfcpu", message="Node didn't have enough resource: cpu", conditions=[]),
        *(Category.NODE_REFUSED, None, True, "enough resource: cpu"),
    ),
    "refused for want of a device": (
        pod(
            "Failed",
            reason="UnexpectedAdmissionError",
            message="Allocate failed due to no devices",
            conditions=[],
        ),
        *(Category.NODE_REFUSED, None, True, "Allocate failed"),
    ),
    "deadline of the pod": (
        pod(
            "Failed",
            reason="DeadlineExceeded",
            message="Pod was active on the node longer than the specified",
        ),
        *(Category.DEADLINE_EXCEEDED, None, False, "longer than the specified"),
    ),
    "deleted by hand, still ending": (
        pod("Running", container(RUNNING), metadata=DELETED),
        *(Category.POD_DELETED, None, True, ""),
    ),
    "deleted by hand, and ended by it": (
        pod("Failed", container(terminated(143, finished=40)), metadata=DELETED),
        *(Category.POD_DELETED, 143, True, ""),
    ),
    "deleted by hand, and ended with 0 on being told": (
        pod("Succeeded", container(terminated(0, "Completed", finished=41)), metadata=DELETED),
        *(Category.POD_DELETED, 0, True, ""),
    ),
    "deleted by force": (
        pod(
            "Running",
            container(RUNNING),
            metadata={"deletionTimestamp": at(40), "deletionGracePeriodSeconds": 0},
        ),
        *(Category.POD_DELETED, None, True, ""),
    ),
    "gone": (None, Category.POD_DELETED, None, True, ""),
    "failed for what nobody has heard of": (
        pod("Failed", reason="GodotCame", message="at last"),
        *(Category.UNKNOWN, None, False, "GodotCame: at last"),
    ),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_rank_that_failed_says_why(name: str) -> None:
    the_pod, category, code, retryable, evidence = FAILED[name]
    seen = observe_rank(1, the_pod, LATE)
    assert seen.status == RankStatus(1, Phase.FAILED, code)
    why = seen.diagnosis
    assert why is not None
    assert (why.category, why.retryable, why.rank) == (category, retryable, 1)
    assert evidence in why.detail
    for sentence in (why.summary, why.resolution):
        assert sentence.endswith(".")
        assert "{" not in sentence


def test_every_row_is_shown_by_a_pod() -> None:
    """A row that no test provokes is a guess."""
    shown = {FAILED[name][1] for name in FAILED}
    rows = [*diagnosis.WAITING.values(), *diagnosis.POD.values(), *diagnosis.DISRUPTION.values()]
    assert {row.category for row in rows} <= shown


@pytest.mark.parametrize("reason", sorted(set(diagnosis.WAITING) - {"InvalidImageName"}))
def test_what_may_mend_itself_has_its_time(reason: str) -> None:
    the_pod = starting(waiting(reason, "why"))
    assert observe_rank(1, the_pod, SOON).status == RankStatus(1, Phase.PENDING, note=f"{reason}: why")
    assert observe_rank(1, the_pod, SOON, start_grace=timedelta(seconds=20)).status.phase is Phase.FAILED
    assert observe_rank(1, the_pod, LATE).status.phase is Phase.FAILED


def test_an_image_with_no_name_has_none() -> None:
    assert observe_rank(1, starting(waiting("InvalidImageName")), T0).status.phase is Phase.FAILED


def test_a_wait_without_any_time_goes_on() -> None:
    the_pod = starting(waiting("ErrImagePull"), conditions=[], startTime=None)
    assert observe_rank(1, the_pod, LATE).status.phase is Phase.PENDING


SILENT = [condition("Ready", "False", since=20), condition("ContainersReady", "True")]


@pytest.mark.parametrize(
    ("last", "category"),
    [
        (pod("Running", container(RUNNING)), Category.POD_DELETED),
        (pod("Running", container(RUNNING), conditions=SILENT), Category.NODE_LOST),
        (
            pod("Running", container(RUNNING), conditions=disrupted("EvictionByEvictionAPI")),
            Category.EVICTED,
        ),
        (pod("Pending", conditions=disrupted("PreemptionByScheduler")), Category.PREEMPTED),
        (pod("Failed", reason="Evicted", message="low on memory"), Category.EVICTED),
    ],
)
def test_of_a_pod_that_is_gone_its_last_word_says_why(last: dict[str, Any], category: Category) -> None:
    seen = observe_rank(1, last, LATE, gone=True)
    assert seen.status.phase is Phase.FAILED
    assert seen.diagnosis is not None
    assert (seen.diagnosis.category, seen.diagnosis.retryable) == (category, True)


def test_a_deletion_that_may_have_been_a_drain_says_so() -> None:
    """Early clusters do not say that a pod was evicted through the API."""
    seen = observe_rank(1, pod("Running", container(RUNNING), metadata=DELETED), LATE)
    assert seen.diagnosis is not None
    assert "evicted by a drain" in seen.diagnosis.resolution
