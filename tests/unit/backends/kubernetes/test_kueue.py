"""The observation of a group that waits for Kueue, from its pods and its Workload."""

from typing import Any

import pytest

from job_tracker.backends.kubernetes.kueue import Place, is_gated, is_held, waiting_note
from job_tracker.backends.kubernetes.status import observe_rank
from job_tracker.domain.group import Phase
from tests.support.pods import LATE, pod

LABELS = {"kueue.x-k8s.io/queue-name": "vision", "kueue.x-k8s.io/managed": "true"}
GATES = [{"name": "kueue.x-k8s.io/admission"}]


def gated(**metadata: Any) -> dict[str, Any]:
    spec = {"schedulingGates": GATES, "nodeName": None}
    return pod(
        "Pending", conditions=[], spec=spec, metadata={"labels": LABELS, "namespace": "here", **metadata}
    )


def workload(*conditions: tuple[str, str, str, str]) -> dict[str, Any]:
    keys = ("type", "status", "reason", "message")
    return {"status": {"conditions": [dict(zip(keys, each, strict=True)) for each in conditions]}}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((), "Kueue has not looked at it yet"),
        (
            (("QuotaReserved", "False", "Inadmissible", "LocalQueue vision doesn't exist"),),
            "not QuotaReserved (Inadmissible): LocalQueue vision doesn't exist",
        ),
        (
            (
                ("Admitted", "False", "UnsatisfiedAdmissionChecks", "The workload has failed checks"),
                ("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue a"),
            ),
            "QuotaReserved (QuotaReserved): Quota reserved in ClusterQueue a; not Admitted "
            "(UnsatisfiedAdmissionChecks): The workload has failed checks",
        ),
        (
            (
                ("QuotaReserved", "False", "Pending", "Preempted to accommodate a workload"),
                ("Evicted", "True", "Preempted", "Preempted to accommodate a workload"),
                ("Preempted", "True", "InClusterQueue", "Preempted to accommodate a workload"),
            ),
            "Evicted (Preempted): Preempted to accommodate a workload; Preempted (InClusterQueue): Preempted "
            "to accommodate a workload; not QuotaReserved (Pending): Preempted to accommodate a workload",
        ),
        ((("Evicted", "False", "QuotaReserved", "Earlier"), ("PodsReady", "False", "a", "b")), "not looked"),
        (
            (
                ("Admitted", "True", "Admitted", "It is"),
                ("Finished", "True", "FailedToStart", "error: a check"),
            ),
            "Finished (FailedToStart): error: a check; Admitted",
        ),
    ],
)
def test_the_conditions_are_passed_on(conditions: Any, expected: str) -> None:
    note = waiting_note(gated(), workload(*conditions))
    assert note.startswith("Waits for Kueue in the LocalQueue vision: ")
    assert expected in note


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (Place(0, 0), "first in its ClusterQueue"),
        (Place(1, 0), "after 1 other in its ClusterQueue, 0 of them in this LocalQueue"),
        (Place(7, 2), "after 7 others in its ClusterQueue, 2 of them in this LocalQueue"),
    ],
)
def test_the_place_is_said_if_it_is_known(place: Place, expected: str) -> None:
    waits = "Waits for Kueue in the LocalQueue vision"
    assert waiting_note(gated(), workload(), place) == f"{waits}, {expected}: Kueue has not looked at it yet"


def test_pods_that_kueue_does_not_manage_are_said() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "vision"}
    assert "does not manage the pod" in waiting_note(gated(labels=labels), None)
    assert "manages the namespace here" in waiting_note(gated(labels=labels), None)
    assert "has made no Workload" in waiting_note(gated(), None)


def test_a_gated_rank_is_observed_as_one_with_the_note() -> None:
    status = observe_rank(0, gated(), LATE, gate_note="Waits for Kueue: no quota").status
    assert (status.phase, status.is_gated, status.note) == (Phase.PENDING, True, "Waits for Kueue: no quota")
    assert observe_rank(1, gated(), LATE).status.note == "Waits for Kueue"


def test_another_gate_is_not_kueues() -> None:
    other = pod("Pending", spec={"schedulingGates": [{"name": "example.com/license"}]})
    assert not is_gated(other)
    assert is_gated(gated())


def test_only_deleted_pods_that_never_ran_are_held() -> None:
    deleted = {"deletionTimestamp": "2026-11-21T12:00:50Z", "finalizers": ["kueue.x-k8s.io/managed"]}
    assert is_held(gated(**deleted))
    assert not is_held(gated(finalizers=deleted["finalizers"]))
    assert not is_held(gated(deletionTimestamp=deleted["deletionTimestamp"]))
    assert not is_held(pod("Pending", metadata=deleted)), "it has a node, which ends it"
