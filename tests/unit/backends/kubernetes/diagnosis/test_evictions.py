"""Pods that others stop with notice: one row for each way, and the diagnosis after later events."""

from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.backends.kubernetes import diagnosis
from job_tracker.backends.kubernetes.status import observe_rank
from job_tracker.domain.eviction import EvictionReason
from job_tracker.domain.group import Phase, RankStatus
from tests.support.backends import KubernetesGroups, groups_of, seen
from tests.support.fake_cluster import fake_cluster
from tests.support.jobs import job
from tests.support.pods import (
    DELETED,
    LATE,
    RUNNING,
    T0,
    condition,
    container,
    disrupted,
    pod,
    starting,
    terminated,
    waiting,
)

DRAINED = disrupted("EvictionByEvictionAPI", "Eviction API: evicting")
AT_ONCE = {"deletionGracePeriodSeconds": 0}
BY_KUEUE = [
    condition("TerminationTarget", "True", "WorkloadEvicted", "Preempted to accommodate", 40),
]
EVICTED = {
    # name: (pod, reason, phase, exit code, the engine's words)
    "drained": (
        pod("Running", container(RUNNING), conditions=DRAINED, metadata=DELETED),
        *(EvictionReason.DRAINED, Phase.RUNNING, None, "EvictionByEvictionAPI: Eviction API: evicting"),
    ),
    "drained before it has started": (
        starting(waiting("ContainerCreating"), conditions=DRAINED, metadata=DELETED),
        *(EvictionReason.DRAINED, Phase.PENDING, None, "EvictionByEvictionAPI: Eviction API: evicting"),
    ),
    "drained, and it exited with 0 on SIGTERM": (
        pod(
            "Succeeded",
            container(terminated(0, "Completed", finished=42)),
            conditions=DRAINED,
            metadata=DELETED,
        ),
        *(EvictionReason.DRAINED, Phase.STOPPED, 0, "EvictionByEvictionAPI: Eviction API: evicting"),
    ),
    "preempted by the scheduler": (
        pod(
            "Running",
            container(RUNNING),
            conditions=disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate"),
            metadata=DELETED,
        ),
        EvictionReason.OUTRANKED,
        *(Phase.RUNNING, None, "PreemptionByScheduler: default-scheduler: preempting to accommodate"),
    ),
    "preempted by the kubelet": (
        pod("Failed", container(RUNNING), reason="Preempting", message="to admit critical pod"),
        *(EvictionReason.OUTRANKED, Phase.RUNNING, None, "Preempting: to admit critical pod"),
    ),
    "on a node that answers, with a new taint": (
        pod(
            "Running",
            container(RUNNING),
            conditions=disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
            metadata=DELETED,
        ),
        EvictionReason.TAINTED,
        *(Phase.RUNNING, None, "DeletionByTaintManager: Taint manager: deleting due to NoExecute taint"),
    ),
    "on a node that is shut down": (
        pod("Failed", container(RUNNING), reason="Terminated", message="imminent node shutdown."),
        *(EvictionReason.SHUT_DOWN, Phase.RUNNING, None, "Terminated: imminent node shutdown."),
    ),
    "ended on a node that is shut down": (
        pod("Failed", container(terminated(143, finished=41)), reason="Terminated"),
        *(EvictionReason.SHUT_DOWN, Phase.STOPPED, 143, "Terminated"),
    ),
    "stopped by Kueue": (
        pod("Running", container(RUNNING), conditions=BY_KUEUE, metadata=DELETED),
        *(EvictionReason.CLUSTER_QUEUE, Phase.RUNNING, None, "WorkloadEvicted: Preempted to accommodate"),
    ),
    "stopped by Kueue before it has a node": (  # the API server then gives no grace
        pod("Pending", conditions=BY_KUEUE, metadata={**DELETED, **AT_ONCE}),
        *(EvictionReason.CLUSTER_QUEUE, Phase.PENDING, None, "WorkloadEvicted: Preempted to accommodate"),
    ),
    "about to be stopped by Kueue": (
        pod("Running", container(RUNNING), conditions=BY_KUEUE),
        *(EvictionReason.CLUSTER_QUEUE, Phase.RUNNING, None, "WorkloadEvicted: Preempted to accommodate"),
    ),
    "deleted by hand, still ending": (
        pod("Running", container(RUNNING), metadata=DELETED),
        *(EvictionReason.DELETED, Phase.RUNNING, None, ""),
    ),
    "deleted by hand, and ended": (
        pod("Failed", container(terminated(143, finished=40)), metadata=DELETED),
        *(EvictionReason.DELETED, Phase.STOPPED, 143, ""),
    ),
    "deleted by hand, and exited with 0 on SIGTERM": (
        pod("Succeeded", container(terminated(0, "Completed", finished=41)), metadata=DELETED),
        *(EvictionReason.DELETED, Phase.STOPPED, 0, ""),
    ),
}


@pytest.mark.parametrize("name", EVICTED)
def test_a_pod_with_notice_has_not_failed_and_runs_until_its_container_ends(name: str) -> None:
    the_pod, why, phase, code, words = EVICTED[name]
    found = observe_rank(1, the_pod, LATE)
    assert (found.status, found.diagnosis) == (RankStatus(1, phase, code), None)
    notice = found.eviction
    assert notice is not None
    assert (notice.why, notice.rank, notice.machine, notice.detail) == (why, 1, "node-1", words)


def test_every_row_with_notice_is_tested() -> None:
    shown = {why for _, why, *_ in EVICTED.values()}
    rows = [*diagnosis.POD.values(), *diagnosis.DISRUPTION.values(), diagnosis.DELETED, diagnosis.BY_KUEUE]
    assert {row.eviction for row in rows} - {None} == shown == set(EvictionReason)


def test_the_time_of_a_notice_is_when_the_deletion_was_asked_for() -> None:
    found = observe_rank(1, pod("Running", container(RUNNING), metadata=DELETED), LATE)
    assert found.eviction is not None
    assert (found.eviction.at - T0).total_seconds() == 40


def test_a_pod_that_the_service_stops_is_not_evicted() -> None:
    found = observe_rank(1, pod("Running", container(RUNNING), metadata=DELETED), LATE, stopping=True)
    assert (found.status.phase, found.eviction) == (Phase.RUNNING, None)


def test_a_pod_that_had_ended_before_is_not_evicted() -> None:
    the_pod = pod("Failed", container(terminated(3, finished=39)), metadata=DELETED)
    found = observe_rank(1, the_pod, LATE)
    assert (found.status, found.eviction) == (RankStatus(1, Phase.FAILED, 3), None)
    assert found.diagnosis is not None


def test_a_pod_that_is_deleted_with_its_master_is_not_evicted() -> None:
    """The cluster deletes it, because the master owns it. Why the master is gone is unknown."""
    the_pod = pod("Running", container(RUNNING), metadata=DELETED)
    found = observe_rank(1, the_pod, LATE, orphaned=True)
    assert (found.status.phase, found.eviction) == (Phase.FAILED, None)
    drained = pod("Running", container(RUNNING), conditions=DRAINED, metadata=DELETED)
    assert observe_rank(1, drained, LATE, orphaned=True).eviction is not None


async def test_the_notice_stays_known_until_the_pod_is_gone(tmp_path: Path) -> None:
    """A node deletes an ended pod without a grace period, like a pod that is deleted by force."""
    worker = "program-1-1-worker"
    async with fake_cluster(tmp_path) as cluster:
        world = KubernetesGroups(cluster.kubeconfig, "here", "image:1", tmp_path / "logs")
        backend, asked = world.open(), job(instances=2)
        await backend.launch(asked)
        cluster.run("program-1-master", worker)
        cluster.mark_deleted(worker)
        first = await seen(backend, asked.group, lambda found: found.eviction is not None)
        assert first.statuses[1] == RankStatus(1, Phase.RUNNING)
        cluster.end(worker, 143)
        ended = await seen(backend, asked.group, lambda found: found.statuses[1].phase is Phase.STOPPED)
        cluster.put("pods", {**(last := cluster.get(worker)), "metadata": {**last["metadata"], **AT_ONCE}})
        cluster.delete(worker)
        await seen(backend, asked.group, lambda _: cluster.names() == {"program-1-master"})
        last_seen = (await groups_of(backend))[asked.group]
        stopped = await backend.stop(asked.group, timedelta(seconds=1))
        await world.end()
    for found in (ended, last_seen):
        assert (found.eviction, found.first_failure) == (first.eviction, None)
        assert found.statuses[1] == RankStatus(1, Phase.STOPPED, 143)
    assert stopped is not None
    assert stopped.first_failure is None


async def test_a_pod_with_notice_that_is_removed_by_force_has_an_unknown_exit_code(tmp_path: Path) -> None:
    worker = "program-1-1-worker"
    async with fake_cluster(tmp_path) as cluster:
        world = KubernetesGroups(cluster.kubeconfig, "here", "image:1", tmp_path / "logs")
        backend, asked = world.open(), job(instances=2)
        await backend.launch(asked)
        cluster.run("program-1-master", worker)
        cluster.mark_deleted(worker)
        cluster.delete(worker)
        found = await seen(backend, asked.group, lambda found: found.statuses[1].phase is Phase.STOPPED)
        await world.end()
    assert (found.statuses[1].exit_code, found.first_failure) == (None, None)
    assert found.eviction is not None
