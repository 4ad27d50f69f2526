"""All failures of ranks on a cluster: one row for each reason that the API server reports."""

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
SILENT = [condition("Ready", "False", since=20), condition("ContainersReady", "True")]
BY_FORCE = {"deletionTimestamp": at(40), "deletionGracePeriodSeconds": 0}
FAILED = {
    # name: (pod, category, exit code, retryable, evidence)
    "missing image": (
        starting(waiting("ImagePullBackOff", PULL)),
        *(Category.IMAGE_PULL_FAILED, None, False, PULL),
    ),
    "image that cannot be pulled, between two tries": (
        starting(waiting("ErrImagePull", "rpc error: code = NotFound")),
        *(Category.IMAGE_PULL_FAILED, None, False, "rpc error: code = NotFound"),
    ),
    "image that the pull policy forbids": (
        starting(
            waiting("ErrImageNeverPull", 'Container image "a:1" is not present with pull policy of Never')
        ),
        *(Category.IMAGE_PULL_FAILED, None, False, "pull policy of Never"),
    ),
    "image with an invalid name": (
        starting(waiting("InvalidImageName", 'Failed to apply default image tag "A:B:C"')),
        *(Category.INVALID_IMAGE, None, False, "A:B:C"),
    ),
    "missing secret": (
        starting(waiting("CreateContainerConfigError", 'secret "storage" not found')),
        *(Category.CONTAINER_CONFIG, None, False, 'secret "storage" not found'),
    ),
    "image that runs as root": (
        starting(
            waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")
        ),
        *(Category.CONTAINER_CONFIG, None, False, "runAsNonRoot"),
    ),
    "container that cannot be created": (
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
    "crash beside a running sidecar": (
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
    "crash with a message about memory": (
        pod("Failed", container(terminated(1, message="torch.OutOfMemoryError: CUDA out of memory."))),
        *(Category.OUT_OF_MEMORY, 1, False, "CUDA out of memory"),
    ),
    "killed for exceeding its memory limit": (
        pod("Failed", container(terminated(137, "OOMKilled"))),
        *(Category.OUT_OF_MEMORY, 137, False, ""),
    ),
    "killed by an unknown sender": (
        pod("Failed", container(terminated(137))),
        *(Category.KILLED, 137, True, ""),
    ),
    "signal that only Docker reports": (
        pod("Failed", container({"terminated": {"exitCode": 0, "signal": 9, "finishedAt": at(3)}})),
        *(Category.KILLED, 137, True, ""),
    ),
    "missing program, with containerd": (
        pod("Failed", container(terminated(128, "StartError", NOT_FOUND))),
        *(Category.COMMAND_NOT_FOUND, 128, False, NOT_FOUND),
    ),
    "missing program, with Docker": (
        pod("Failed", container(terminated(127, "ContainerCannotRun", NOT_FOUND))),
        *(Category.COMMAND_NOT_FOUND, 127, False, NOT_FOUND),
    ),
    "program that is not executable": (
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
    "container unknown to its node": (
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
    "evicted for lack of memory, up to 1.25": (
        pod("Failed", reason="Evicted", message="The node was low on resource: memory. ", conditions=[]),
        *(Category.EVICTED, None, True, "low on resource: memory"),
    ),
    "evicted for lack of disk": (
        pod(
            "Failed",
            container(terminated(137, finished=41)),
            conditions=disrupted("TerminationByKubelet", "The node was low on resource: ephemeral-storage."),
            reason="Evicted",
            message="The node was low on resource: ephemeral-storage. ",
        ),
        *(Category.EVICTED, 137, True, "low on resource: ephemeral-storage"),
    ),
    "evicted for filling its shared memory": (
        pod("Failed", reason="Evicted", message='Usage of EmptyDir volume "shm" exceeds the limit "1Gi". '),
        *(Category.EVICTED, None, False, 'volume "shm" exceeds the limit'),
    ),
    "node that was unreachable for too long": (
        pod(
            "Running",
            container(RUNNING),
            conditions=[*SILENT, *disrupted("DeletionByTaintManager", "Taint manager: deleting")],
            metadata=DELETED,
        ),
        *(Category.NODE_LOST, None, True, "Taint manager"),
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
    "node lost, by its controller": (
        pod(
            "Running",
            container(RUNNING),
            metadata=DELETED,
            reason="NodeLost",
            message="Node n is unresponsive",
        ),
        *(Category.NODE_LOST, None, True, "Node n is unresponsive"),
    ),
    "node lost, by the phase": (
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
    "unknown disruption": (
        pod("Running", container(RUNNING), conditions=disrupted("DeletionByGodot", "he came")),
        *(Category.KILLED, None, True, "DeletionByGodot: he came"),
    ),
    "refused by its node": (
        pod("Failed", reason="OutOfcpu", message="Node didn't have enough resource: cpu", conditions=[]),
        *(Category.NODE_REFUSED, None, True, "enough resource: cpu"),
    ),
    "refused for lack of a device": (
        pod(
            "Failed",
            reason="UnexpectedAdmissionError",
            message="Allocate failed due to no devices",
            conditions=[],
        ),
        *(Category.NODE_REFUSED, None, True, "Allocate failed"),
    ),
    "deadline of the pod exceeded": (
        pod(
            "Failed",
            reason="DeadlineExceeded",
            message="Pod was active on the node longer than the specified",
        ),
        *(Category.DEADLINE_EXCEEDED, None, False, "longer than the specified"),
    ),
    "deleted by force": (
        pod(
            "Running",
            container(RUNNING),
            metadata=BY_FORCE,
        ),
        *(Category.POD_DELETED, None, True, ""),
    ),
    "preempted by the scheduler, without a grace": (
        pod("Running", container(RUNNING), conditions=disrupted("PreemptionByScheduler"), metadata=BY_FORCE),
        *(Category.PREEMPTED, None, True, ""),
    ),
    "gone": (None, Category.POD_DELETED, None, True, ""),
    "failed for an unknown reason": (
        pod("Failed", reason="GodotCame", message="at last"),
        *(Category.UNKNOWN, None, False, "GodotCame: at last"),
    ),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_failed_rank_has_its_diagnosis(name: str) -> None:
    the_pod, category, code, retryable, evidence = FAILED[name]
    seen = observe_rank(1, the_pod, LATE)
    assert seen.status == RankStatus(1, Phase.FAILED, code)
    found = seen.diagnosis
    assert found is not None
    assert (found.category, found.retryable, found.rank) == (category, retryable, 1)
    assert evidence in found.detail
    for sentence in (found.summary, found.resolution):
        assert sentence.endswith(".")
        assert "{" not in sentence


def test_every_row_of_the_tables_is_tested() -> None:
    """A row without a test may be wrong."""
    shown = {FAILED[name][1] for name in FAILED}
    rows = [*diagnosis.WAITING.values(), *diagnosis.POD.values(), *diagnosis.DISRUPTION.values()]
    assert {row.category for row in rows} <= shown


@pytest.mark.parametrize("reason", sorted(set(diagnosis.WAITING) - {"InvalidImageName"}))
def test_a_temporary_problem_gets_time_to_disappear(reason: str) -> None:
    the_pod = starting(waiting(reason, "why"))
    assert observe_rank(1, the_pod, SOON).status == RankStatus(1, Phase.PENDING, note=f"{reason}: why")
    assert observe_rank(1, the_pod, SOON, start_grace=timedelta(seconds=20)).status.phase is Phase.FAILED
    assert observe_rank(1, the_pod, LATE).status.phase is Phase.FAILED


def test_a_secret_that_the_kubelet_has_not_read_yet_is_no_problem() -> None:
    message = "failed to sync secret cache: timed out waiting for the condition"
    the_pod = starting(waiting("CreateContainerConfigError", message))
    note = f"CreateContainerConfigError: {message}"
    assert observe_rank(1, the_pod, LATE).status == RankStatus(1, Phase.PENDING, note=note)


def test_an_invalid_image_name_fails_at_once() -> None:
    assert observe_rank(1, starting(waiting("InvalidImageName")), T0).status.phase is Phase.FAILED


def test_a_wait_without_a_start_time_continues() -> None:
    the_pod = starting(waiting("ErrImagePull"), conditions=[], startTime=None)
    assert observe_rank(1, the_pod, LATE).status.phase is Phase.PENDING


@pytest.mark.parametrize(
    ("last", "category"),
    [
        (pod("Running", container(RUNNING)), Category.POD_DELETED),
        (pod("Running", container(RUNNING), conditions=SILENT), Category.NODE_LOST),
        (pod("Failed", reason="Evicted", message="low on memory"), Category.EVICTED),
    ],
)
def test_the_last_status_of_a_deleted_pod_explains_its_end(last: dict[str, Any], category: Category) -> None:
    seen = observe_rank(1, last, LATE, gone=True)
    assert seen.status.phase is Phase.FAILED
    assert seen.diagnosis is not None
    assert (seen.diagnosis.category, seen.diagnosis.retryable) == (category, True)


def test_a_deletion_that_may_have_been_a_drain_says_so() -> None:
    """Early clusters do not report that a pod was evicted through the API."""
    seen = observe_rank(1, pod("Running", container(RUNNING)), LATE, gone=True)
    assert seen.diagnosis is not None
    assert "drain of its node evicted it" in seen.diagnosis.resolution
