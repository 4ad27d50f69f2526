"""The meaning of a pod's status without a failure, and while the service stops the group."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.backends.kubernetes.status import observe_rank, pending_reason
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.group import Phase, RankStatus
from tests.support.pods import (
    DELETED,
    LATE,
    RUNNING,
    SCHEDULED,
    condition,
    container,
    pod,
    starting,
    terminated,
    waiting,
)


def observed(the_pod: dict[str, Any] | None, now: datetime = LATE, **how: Any) -> RankObservation:
    return observe_rank(1, the_pod, now, **how)


def all_observed(instances: int, pods: dict[int, Any], **how: Any) -> Observation:
    return Observation(tuple(observe_rank(rank, pods.get(rank), LATE, **how) for rank in range(instances)))


LIVING = {
    # name: (pod, phase, exit code, note)
    "just created": (
        {"metadata": {"name": "a", "uid": "u"}, "spec": {}, "status": {"phase": "Pending", "qosClass": "x"}},
        *(Phase.PENDING, None, ""),
    ),
    "without a status": ({"metadata": {"name": "a"}, "spec": {}}, Phase.PENDING, None, ""),
    "scheduled": (pod("Pending", conditions=[SCHEDULED]), Phase.PENDING, None, ""),
    "unschedulable": (
        {
            "metadata": {"name": "a", "uid": "u"},
            "status": {
                "phase": "Pending",
                "conditions": [
                    condition(
                        *("PodScheduled", "False", "Unschedulable"),
                        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
                    )
                ],
            },
        },
        *(Phase.PENDING, None, "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu."),
    ),
    "held back by a scheduling gate": (
        pod("Pending", conditions=[condition("PodScheduled", "False", "SchedulingGated", "blocked")]),
        *(Phase.PENDING, None, "SchedulingGated: blocked"),
    ),
    "being created": (starting(waiting("ContainerCreating")), Phase.PENDING, None, ""),
    "waiting for its init container": (
        starting(waiting("PodInitializing"), initContainerStatuses=[container(RUNNING, "fetch")]),
        *(Phase.PENDING, None, ""),
    ),
    "waiting for an unknown reason": (
        starting(waiting("WaitingForGodot", "he comes tomorrow")),
        *(Phase.PENDING, None, "WaitingForGodot: he comes tomorrow"),
    ),
    "running": (pod("Running", container(RUNNING)), Phase.RUNNING, None, ""),
    "running beside a sidecar that cannot start": (
        pod("Running", container(waiting("ImagePullBackOff"), "mesh"), container(RUNNING)),
        *(Phase.RUNNING, None, ""),
    ),
    "on a silent node": (
        pod(
            "Running",
            container(RUNNING),
            conditions=[condition("Ready", "False", since=50), condition("ContainersReady", "True")],
        ),
        *(Phase.RUNNING, None, "Its node does not answer"),
    ),
    "not ready, and neither is its sidecar": (
        pod(
            "Running",
            container(RUNNING),
            conditions=[condition("Ready", "False"), condition("ContainersReady", "False")],
        ),
        *(Phase.RUNNING, None, ""),
    ),
    "succeeded": (pod("Succeeded", container(terminated(0, "Completed"))), Phase.SUCCEEDED, 0, ""),
    "succeeded beside a running sidecar": (
        pod("Running", container(RUNNING, "mesh"), container(terminated(0, "Completed"))),
        *(Phase.SUCCEEDED, 0, ""),
    ),
    "succeeded, then deleted": (
        pod("Succeeded", container(terminated(0, "Completed", finished=39)), metadata=DELETED),
        *(Phase.SUCCEEDED, 0, ""),
    ),
    "succeeded on a node that was lost afterwards": (
        pod("Unknown", container(terminated(0, "Completed"))),
        *(Phase.SUCCEEDED, 0, ""),
    ),
    "succeeded, and its containers were removed": (pod("Succeeded"), Phase.SUCCEEDED, 0, ""),
}


@pytest.mark.parametrize("name", LIVING)
def test_a_rank_that_did_not_fail(name: str) -> None:
    the_pod, phase, code, note = LIVING[name]
    seen = observed(the_pod)
    assert (seen.status, seen.diagnosis) == (RankStatus(1, phase, code, note), None)


STOPPING = [
    (pod("Running", container(RUNNING), metadata=DELETED), RankStatus(1, Phase.RUNNING)),
    (starting(waiting("ContainerCreating"), metadata=DELETED), RankStatus(1, Phase.PENDING)),
    (
        pod("Running", container(terminated(143, finished=41)), metadata=DELETED),
        RankStatus(1, Phase.STOPPED, 143),
    ),
    (pod("Failed", metadata=DELETED), RankStatus(1, Phase.STOPPED)),
    (
        pod("Succeeded", container(terminated(0, finished=41)), metadata=DELETED),
        RankStatus(1, Phase.STOPPED, 0),
    ),
    (None, RankStatus(1, Phase.STOPPED)),
]


@pytest.mark.parametrize(("the_pod", "status"), STOPPING)
def test_a_rank_that_the_service_stops_has_not_failed(
    the_pod: dict[str, Any] | None, status: RankStatus
) -> None:
    assert observed(the_pod, stopping=True) == RankObservation(status)


def test_a_rank_that_ended_before_the_stop_keeps_its_result() -> None:
    crashed = observed(pod("Failed", container(terminated(1, finished=39)), metadata=DELETED), stopping=True)
    assert crashed.status == RankStatus(1, Phase.FAILED, 1)
    succeeded = pod("Succeeded", container(terminated(0, finished=39)), metadata=DELETED)
    assert observed(succeeded, stopping=True).status == RankStatus(1, Phase.SUCCEEDED, 0)


def test_a_node_that_is_silent_for_too_long_is_lost() -> None:
    silent = [condition("Ready", "False", since=50), condition("ContainersReady", "True")]
    the_pod = pod("Running", container(RUNNING), conditions=silent)
    seen = observed(the_pod, node_grace=timedelta(seconds=1))
    assert seen.diagnosis is not None
    assert (seen.status.phase, seen.diagnosis.category) == (Phase.FAILED, Category.NODE_LOST)
    assert "no contact since" in seen.diagnosis.detail


def test_a_running_rank_names_its_machine() -> None:
    assert observed(pod("Running", container({"running": {}}))).machine == "node-1"


def test_a_pod_that_is_not_created_yet_is_not_missing() -> None:
    group = all_observed(3, {0: pod("Running", container(RUNNING))}, launching=True)
    assert [status.phase for status in group.statuses] == [Phase.RUNNING, Phase.PENDING, Phase.PENDING]
    assert group.first_failure is None


def test_the_ranks_of_a_group_are_in_order() -> None:
    pods = {1: pod("Running", container(RUNNING)), 0: pod("Succeeded", container(terminated(0)))}
    group = all_observed(3, pods)
    assert group.statuses == (
        RankStatus(0, Phase.SUCCEEDED, 0),
        RankStatus(1, Phase.RUNNING),
        RankStatus(2, Phase.FAILED),
    )
    assert group.first_failure is not None
    assert (group.first_failure.category, group.first_failure.rank) == (Category.POD_DELETED, 2)


def test_a_rank_that_left_early_is_the_cause_and_not_the_peer_that_failed_without_it() -> None:
    lost = terminated(1, message="RuntimeError: Connection closed by peer [10.1.0.7]:40042", finished=31)
    pods = {0: pod("Failed", container(lost)), 1: pod("Succeeded", container(terminated(0, finished=30)))}
    cause = all_observed(2, pods).first_failure
    assert cause is not None
    assert (cause.rank, cause.summary.startswith("Rank 1 left with exit code 0")) == (1, True)


def test_the_diagnosis_of_a_multi_process_rank_skips_torchruns_report() -> None:
    table = "Root Cause (first observed failure):\n[0]:\n  error_file: <N/A>\n" + "=" * 60
    cut = f"half a line\nValueError: x\nTraceback (most recent call last):\n{'x' * 2048}\n{table}"
    seen = observed(pod("Failed", container(terminated(1, message=cut))))
    assert seen.diagnosis is not None
    assert seen.diagnosis.detail == "ValueError: x"


def test_notes_are_short() -> None:
    the_pod = pod("Pending", conditions=[condition("PodScheduled", "False", "Unschedulable", "x" * 5000)])
    assert len(pending_reason(the_pod) or "") == 400
    assert pending_reason(pod("Running", container(RUNNING))) is None


@pytest.mark.parametrize(
    ("planned", "seconds", "reason", "expected"),
    [
        (True, 31, "Unschedulable", Category.PLACE_TAKEN),
        (True, 29, "Unschedulable", None),
        (True, 31, "SchedulingGated", None),
        (False, 31, "Unschedulable", None),
    ],
)
def test_a_pod_whose_chosen_node_has_no_room_fails_after_a_while(
    planned: bool, seconds: int, reason: str, expected: Category | None
) -> None:
    since = (LATE - timedelta(seconds=seconds)).isoformat()
    scheduled = {**condition("PodScheduled", "False", reason, "0/1 nodes"), "lastTransitionTime": since}
    made = pod("Pending", conditions=[scheduled])
    if planned:
        chosen = {"training-service/flavor": "a100", "training-service/node": "n1"}
        made["metadata"]["annotations"] = {**made["metadata"].get("annotations", {}), **chosen}
    seen = observed(made)
    assert (seen.diagnosis.category if seen.diagnosis else None) == expected
    if seen.diagnosis:
        assert seen.diagnosis.retryable
        assert "0/1 nodes" in seen.diagnosis.detail
