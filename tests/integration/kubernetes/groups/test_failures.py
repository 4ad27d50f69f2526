"""All failures of groups on a cluster, provoked for real. Each leaves nothing behind."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from job_tracker.backends.kubernetes.backend import KubernetesBackend
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.eviction import EvictionReason
from job_tracker.domain.group import Phase
from tests.support.backends import KubernetesGroups, groups_of, printed, seen, started, text_of
from tests.support.cluster import CommandFailed
from tests.support.jobs import job
from tests.support.place import Place
from tests.support.programs import OUT_OF_MEMORY, saves_at_the_notice

FOREVER = {"RUN_SECONDS": "forever"}
SHORT = timedelta(seconds=1)

KILL = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    if b"/program.py" in open(f"/proc/{pid}/cmdline", "rb").read() and int(pid) != os.getpid():
        os.kill(int(pid), signal.SIGKILL)
"""


async def failure_of(backend: KubernetesBackend, instances: int = 1) -> Diagnosis:
    await backend.launch(job(instances=instances))
    end = await seen(backend, job().group, lambda o: o.first_failure is not None)
    assert end.first_failure is not None
    return end.first_failure


async def stop(backend: KubernetesBackend) -> list[Phase]:
    end = await backend.stop(job().group, SHORT)
    assert end is not None
    return [rank.phase for rank in end.statuses]


async def test_a_missing_image_is_a_failure_after_a_grace_period(
    world: KubernetesGroups, place: Place
) -> None:
    world.add("program", image="nowhere.invalid/nothing:1")
    backend = world.open(image_pull_grace=timedelta(seconds=2))
    assert (await failure_of(backend)).category is Category.IMAGE_PULL_FAILED
    assert await stop(backend) == [Phase.FAILED]
    assert place.left() == []


async def test_a_group_that_fits_on_no_node_waits_with_a_reason(
    world: KubernetesGroups, place: Place
) -> None:
    world.add("program", resources={"example.com/no-such-device": "1"})
    backend = world.open()
    await backend.launch(job(instances=2))
    waiting = await seen(backend, job().group, lambda o: all(rank.note for rank in o.statuses))
    assert [rank.phase for rank in waiting.statuses] == [Phase.PENDING] * 2
    assert "Insufficient example.com/no-such-device" in waiting.statuses[0].note
    assert await stop(backend) == [Phase.STOPPED] * 2
    assert place.left() == []


async def test_a_missing_secret_is_named(world: KubernetesGroups, place: Place) -> None:
    world.add("program", secret_environment={"KEY": {"secret": "no-such-secret", "key": "a"}})
    backend = world.open(image_pull_grace=timedelta(seconds=1))
    diagnosis = await failure_of(backend)
    assert diagnosis.category is Category.CONTAINER_CONFIG
    assert "no-such-secret" in diagnosis.detail
    await stop(backend)
    assert place.left() == []


async def test_more_memory_than_the_limit_is_out_of_memory(world: KubernetesGroups, place: Place) -> None:
    limit = {"memory": "64Mi"}
    world.add("program", "python3", "-c", OUT_OF_MEMORY, resources=limit, pod_template={})
    backend = world.open()
    assert (await failure_of(backend)).category is Category.OUT_OF_MEMORY
    assert await stop(backend) == [Phase.FAILED]
    assert place.left() == []


@pytest.mark.parametrize("rank", [0, 1])
async def test_a_killed_rank_is_diagnosed_as_killed(world: KubernetesGroups, place: Place, rank: int) -> None:
    backend = world.open()
    asked = job(FOREVER, instances=2)
    plan = world.plan(asked)
    await started(backend, asked)
    # The command may be killed with the container, or complete just before.
    with suppress(CommandFailed):
        await asyncio.to_thread(place.in_pod, plan.pods[rank]["metadata"]["name"], KILL)
    end = await seen(backend, job().group, lambda o: o.first_failure is not None)
    assert end.first_failure is not None
    assert (end.first_failure.category, end.first_failure.rank) == (Category.KILLED, rank)
    assert end.statuses[rank].exit_code == 137
    phases = await stop(backend)
    assert (phases[rank], phases[1 - rank]) == (Phase.FAILED, Phase.STOPPED)
    assert place.left() == []


@pytest.mark.parametrize("rank", [0, 1])
async def test_a_pod_deleted_by_hand_is_an_eviction(world: KubernetesGroups, place: Place, rank: int) -> None:
    backend = world.open()
    asked = job(FOREVER, instances=2)
    plan = world.plan(asked)
    await started(backend, asked)
    name = plan.pods[rank]["metadata"]["name"]
    await asyncio.to_thread(place.kubectl, "delete", "pod", name, "--grace-period=1", "--wait=false")
    end = await seen(backend, job().group, lambda o: o.eviction is not None)
    assert (end.eviction.why, end.eviction.rank) == (EvictionReason.DELETED, rank)  # type: ignore[union-attr]
    await seen(backend, job().group, lambda o: o.statuses[rank].phase is Phase.STOPPED)
    assert await stop(backend) == [Phase.STOPPED] * 2
    assert place.left() == []
    assert await groups_of(backend) == {}


async def test_a_group_without_its_service_is_stopped_like_any_other(
    world: KubernetesGroups, place: Place
) -> None:
    backend = world.open()
    asked = job(FOREVER, instances=2)
    await started(backend, asked)
    place.kubectl("delete", "service", "program-1-master-service")
    assert await stop(backend) == [Phase.STOPPED] * 2
    assert place.left() == []


async def test_output_during_the_grace_period_is_kept(world: KubernetesGroups, place: Place) -> None:
    world.add("program", "python3", "-c", saves_at_the_notice(seconds=0.3, exit_code=0))
    backend = world.open()
    await started(backend, job())
    assert await printed(backend, job().group) == "up\n"
    end = await backend.stop(job().group, timedelta(seconds=10))
    assert end is not None
    assert end.statuses[0].exit_code in {0, None}  # not 137: it ended by itself. None: the code is unknown
    assert await text_of(backend.logs(job().group, 0)) == "up\nsaved\n"
