"""Pods and Services that are removed from outside, for real: by an eviction, by hand, by force."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from job_tracker.domain.diagnosis import Category
from job_tracker.domain.eviction import EvictionReason
from job_tracker.domain.group import Phase
from tests.support.backends import KubernetesGroups, groups_of, printed, seen, started, text_of
from tests.support.jobs import job
from tests.support.patience import PATIENCE
from tests.support.place import Place
from tests.support.programs import saves_at_the_notice

FOREVER = {"RUN_SECONDS": "forever", "PRINT": "up"}
SHORT = timedelta(seconds=1)


async def test_the_last_output_of_an_evicted_pod_is_kept_and_its_end_is_no_failure(
    world: KubernetesGroups, place: Place
) -> None:
    # The eviction grants the grace period of the pod, and the program ends by itself long before its end.
    template = {"spec": {"shareProcessNamespace": True, "terminationGracePeriodSeconds": round(PATIENCE)}}
    program = saves_at_the_notice(seconds=20, exit_code=143)
    world.add("program", "python3", "-c", program, pod_template=template)
    backend, asked = world.open(), job(instances=2)
    plan, tells_evictions = world.plan(asked), place.tells_evictions()
    await started(backend, asked)
    for rank in (0, 1):
        assert await printed(backend, asked.group, rank) == "up\n"
    await asyncio.to_thread(place.evict, plan.pods[1]["metadata"]["name"])
    end = await seen(backend, asked.group, lambda o: o.eviction is not None)
    assert end.eviction is not None
    assert (end.eviction.rank, end.first_failure) == (1, None)
    stopped = await backend.stop(asked.group, timedelta(seconds=PATIENCE))
    assert (end.eviction.why is EvictionReason.DRAINED) == tells_evictions
    assert stopped is not None
    # A cluster that removes a pod may do so before it has given the exit code.
    assert {rank.status.exit_code for rank in stopped.ranks} <= {143, None}
    assert stopped.first_failure is None
    for rank in (0, 1):
        # Old kubelets remove the log 0.3 s after the end of an evicted pod. The stop must begin to read it in
        # the 20 s before that.
        assert await text_of(backend.logs(asked.group, rank)) == "up\nsaved\n"
    again = await started(backend, replace(asked, attempt=2))
    assert [rank.phase for rank in again.statuses] == [Phase.RUNNING] * 2


@pytest.mark.parametrize("gone", [0, 1])
async def test_logs_of_the_other_ranks_are_kept_when_a_pod_is_deleted_by_force(
    world: KubernetesGroups, place: Place, gone: int
) -> None:
    backend, asked = world.open(), job(FOREVER, instances=3)
    plan = world.plan(asked)
    await started(backend, asked)
    for rank in range(3):
        assert await printed(backend, asked.group, rank) == "up\n"
    name = plan.pods[gone]["metadata"]["name"]
    await asyncio.to_thread(place.kubectl, "delete", "pod", name, "--force", "--grace-period=0")
    end = await seen(backend, asked.group, lambda o: o.first_failure is not None)
    assert end.first_failure is not None
    assert end.first_failure.category is Category.POD_DELETED
    await backend.stop(asked.group, SHORT)
    for rank in {0, 1, 2} - {gone}:
        assert await text_of(backend.logs(asked.group, rank)) == "up\n"


async def test_a_deleted_service_is_recreated_and_resolves_to_the_master(
    world: KubernetesGroups, place: Place
) -> None:
    backend = world.open()
    await groups_of(backend)
    asked = job(FOREVER, instances=2)
    plan = world.plan(asked)
    await started(backend, asked)
    name = plan.service["metadata"]["name"] if plan.service else ""
    before = place.cluster.get(place.namespace, "service", name)
    place.kubectl("delete", "service", name)
    async with asyncio.timeout(PATIENCE):
        while name not in place.kubectl("get", "services", "-o", "name"):
            await asyncio.sleep(0.1)
    after = place.cluster.get(place.namespace, "service", name)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    for key in ("labels", "annotations", "ownerReferences"):
        assert after["metadata"][key] == before["metadata"][key]
    assert after["spec"]["selector"] == before["spec"]["selector"]
    async with asyncio.timeout(PATIENCE):
        while not place.cluster.get(place.namespace, "endpoints", name).get("subsets"):
            await asyncio.sleep(0.1)
    [master] = place.cluster.get(place.namespace, "endpoints", name)["subsets"][0]["addresses"]
    assert master["targetRef"]["name"] == plan.pods[0]["metadata"]["name"]
    await backend.stop(asked.group, SHORT)
    assert place.left() == []
