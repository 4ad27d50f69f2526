"""Jobs whose start a stand-in for Kueue decides, on a fake cluster, from the submission to the end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.backends.kubernetes.kueue import KueueMarks
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.job import Job, JobState
from job_tracker.domain.policies import Deadlines
from job_tracker.scheduling.mirror import Outlook
from job_tracker.scheduling.model import Reason
from job_tracker.scheduling.queue_view import QueueFilter, QueuePage
from job_tracker.scheduling.tree import delegated_pool, tree_of
from tests.support.backends import KubernetesGroups
from tests.support.fake_cluster import FakeCluster, fake_cluster
from tests.support.kueue import Kueue
from tests.support.patience import PATIENCE
from tests.support.tracked_service import Service

TREE = tree_of(delegated_pool({}), {})


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    async with fake_cluster(tmp_path) as made:
        yield made


@pytest.fixture
async def kueue(cluster: FakeCluster) -> Kueue:
    return Kueue(cluster, default=1)


@pytest.fixture
async def service(cluster: FakeCluster, tmp_path: Path) -> AsyncIterator[Service]:
    """A service of which two jobs may wait in Kueue."""
    world = KubernetesGroups(cluster.kubeconfig, "here", "image:1", tmp_path / "logs")
    backend = world.open(marks=KueueMarks(), workload_seconds=0.05, image_pull_grace=1)
    made = Service(tmp_path, backend, world.spool())
    made.delegated = 2
    made.pool = lambda: (TREE.pool.flavors, TREE.queues)
    await made.start()
    yield made
    await made.stop()
    await world.end()
    made.world.close()


def waits_for(text: str) -> Callable[[Job], bool]:
    return lambda job: job.is_gated and text in job.gate_note


def starts(job: Job) -> bool:
    return job.was_launched and not job.is_gated


async def listed(service: Service, *jobs: Job) -> QueuePage:
    """Return the queue when these jobs wait and one runs. Its copy is up to 0.1 s old."""
    async with asyncio.timeout(PATIENCE):
        while True:
            page = await service.jobs.queue(BUILT_IN, QueueFilter(), limit=10, after=None)
            there = [each.gang.job_id for each in page.jobs if each.reason is not Reason.PENDING]
            counts = [(each.waiting, each.running) for each in page.queues]
            if (there, counts) == ([job.id for job in jobs], [(len(jobs), 1)]):
                return page
            await asyncio.sleep(0.05)


async def outlook_of(service: Service, job: Job) -> Outlook:
    """Return why a status says that the job waits. The answer may be some seconds old."""
    async with asyncio.timeout(PATIENCE):
        while True:
            outlook = (await service.view(job.id)).outlook
            if outlook is not None and outlook.reason is not Reason.PENDING:
                return outlook
            await asyncio.sleep(0.05)


async def runs(service: Service, cluster: FakeCluster, job: Job) -> Job:
    """Start the pod of a job of one instance that Kueue has let through."""
    await service.until(job.id, starts)
    name = (await service.view(job.id)).job.group.name
    cluster.run(f"{name}-master")
    return await service.reaches(job.id, JobState.RUNNING)


@pytest.mark.usefixtures("kueue")
async def test_a_few_jobs_wait_in_kueue_and_the_next_follows_when_one_starts(
    service: Service, cluster: FakeCluster
) -> None:
    first, second, third, fourth, fifth = [await service.submit() for _ in range(5)]
    await service.until(first.id, starts)
    await service.until(second.id, waits_for("1 more needed"))
    await service.until(third.id, waits_for("1 more needed"))
    assert (await service.view(fourth.id)).job.state is JobState.QUEUED
    explained = await service.jobs.explain(BUILT_IN, third.id)
    assert explained.reasons == (Reason.DELEGATED,)
    assert "insufficient unused quota" in explained.gate_note
    page = await listed(service, second, third, fourth, fifth)
    assert [each.place for each in page.jobs] == [1, 2, 3, 4]
    assert [each.reason for each in page.jobs] == [*[Reason.DELEGATED] * 3, Reason.ORDER]
    assert "insufficient unused quota" in page.jobs[0].label.gate_note
    behind = await service.jobs.explain(BUILT_IN, fourth.id)
    assert (behind.reasons, behind.estimate) == ((Reason.DELEGATED,), None)
    assert (await service.jobs.explain(BUILT_IN, fifth.id)).reasons == (Reason.ORDER, Reason.DELEGATED)
    for job, reason in [(fourth, Reason.DELEGATED), (fifth, Reason.ORDER)]:
        outlook = await outlook_of(service, job)
        assert (outlook.reason, outlook.estimate) == (reason, None)
    await runs(service, cluster, first)
    cluster.end("program-1-master")
    await service.reaches(first.id, JobState.SUCCEEDED)
    await service.until(second.id, starts)
    await service.until(fourth.id, waits_for("more needed"))


async def test_the_time_to_start_does_not_pass_in_kueue(
    service: Service, cluster: FakeCluster, kueue: Kueue
) -> None:
    kueue.admit("default", 0)
    job = await service.submit(deadlines=Deadlines(start=timedelta(seconds=0.3)))
    waiting = await service.until(job.id, waits_for("1 more needed"))
    assert waiting.due_at is None
    kueue.admit("default", 1)
    ended = await service.reaches(job.id, JobState.FAILED)
    assert ended.diagnosis is not None
    assert ended.diagnosis.category is Category.NEVER_STARTED
    assert cluster.names() | cluster.names("workloads") == set()


async def test_the_deadline_of_the_queue_counts_in_kueue(
    service: Service, cluster: FakeCluster, kueue: Kueue
) -> None:
    kueue.admit("default", 0)
    job = await service.submit(deadlines=Deadlines(queue=timedelta(seconds=0.5)))
    ended = await service.reaches(job.id, JobState.FAILED)
    assert ended.diagnosis is not None
    assert ended.diagnosis.category is Category.QUEUED_TOO_LONG
    assert cluster.names() | cluster.names("workloads") == set()


async def test_another_leader_goes_on_with_what_waits(
    service: Service, cluster: FakeCluster, kueue: Kueue
) -> None:
    kueue.admit("default", 0)
    job = await service.submit(instances=2)
    await service.until(job.id, waits_for("2 more needed"))
    uids = {name: cluster.get(name)["metadata"]["uid"] for name in cluster.names()}
    await service.restart()
    kueue.admit("default", 2)
    started = await service.until(job.id, starts)
    assert started.attempt == 1
    assert {name: cluster.get(name)["metadata"]["uid"] for name in cluster.names()} == uids


async def test_a_leader_that_is_gone_before_it_saw_the_launch_leaves_no_second_group(
    service: Service, cluster: FakeCluster, kueue: Kueue
) -> None:
    kueue.admit("default", 0)
    cluster.seconds = 0.05
    job = await service.submit(instances=2)
    async with asyncio.timeout(PATIENCE):
        while not cluster.names():
            await asyncio.sleep(0.01)
    await service.restart()  # in the middle of the launch
    cluster.seconds = 0.0
    await service.until(job.id, waits_for("2 more needed"))
    assert cluster.asked["POST pods"] <= 4
    assert cluster.names() == {"program-1-master", "program-1-1-worker"}


async def test_a_job_that_waits_in_kueue_is_cancelled(
    service: Service, cluster: FakeCluster, kueue: Kueue
) -> None:
    kueue.admit("default", 0)
    job = await service.submit(instances=2)
    await service.until(job.id, waits_for("2 more needed"))
    await service.jobs.cancel(BUILT_IN, job.id)
    await service.reaches(job.id, JobState.CANCELLED)
    assert cluster.names() | cluster.names("workloads") == set()


async def test_a_job_that_kueue_preempts_waits_again_and_goes_on(
    service: Service, cluster: FakeCluster, kueue: Kueue
) -> None:
    job = await runs(service, cluster, await service.submit())
    kueue.admit("default", 0)
    kueue.evict(job.group.name)
    again = await service.until(job.id, lambda seen: seen.attempt == 2 and seen.is_gated)
    assert again.evictions == 1
    assert "due to prioritization" in again.history[-2].sentence("")
    assert again.counted_attempts == 1
    kueue.admit("default", 1)
    await service.until(job.id, starts)
    cluster.run("program-1-r1-master")
    cluster.end("program-1-r1-master")
    await service.reaches(job.id, JobState.SUCCEEDED)
    assert cluster.names() | cluster.names("workloads") == set()


async def test_a_cancelled_job_that_kueue_evicts_meanwhile_is_cancelled(
    service: Service, cluster: FakeCluster, kueue: Kueue
) -> None:
    cluster.ends_pods_at_once = False
    job = await runs(service, cluster, await service.submit())
    await service.jobs.cancel(BUILT_IN, job.id)
    async with asyncio.timeout(PATIENCE):
        while "deletionTimestamp" not in cluster.get("program-1-master")["metadata"]:
            await asyncio.sleep(0.01)
    kueue.evict("program-1")
    cluster.end("program-1-master", 143)
    await service.reaches(job.id, JobState.CANCELLED)
    assert cluster.names() | cluster.names("workloads") == set()
