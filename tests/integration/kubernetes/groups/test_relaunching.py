"""A service killed during a launch is restarted: no rank runs twice in one attempt."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.common.clock import utc_now
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job, JobState
from job_tracker.domain.policies import RetryPolicy
from job_tracker.store.sqlite import SqliteStore
from tests.crash.remote import PodWatch
from tests.support.backends import KubernetesGroups, seen, started
from tests.support.jobs import failures, job, spec
from tests.support.patience import PATIENCE
from tests.support.place import Place
from tests.support.tracked_service import Service

# The first attempt would run for ever, so only its end can lead to the next.
HOLD_ONCE = "import os, time\nif os.environ['JOB_ATTEMPT'] == '1': time.sleep(1e6)"
# After the deletion of the master, the cluster deletes the worker. The worker is still there when the service
# starts: as process 1, it ignores the notice, and it has a long grace period.
STAYS = {"spec": {"terminationGracePeriodSeconds": round(PATIENCE)}}
ONCE_MORE = RetryPolicy(max_attempts=2, backoff=timedelta(seconds=0.1))
AT_ONCE = ("--grace-period=0", "--force")
MASTER, WORKER = "program-1-master", "program-1-1-worker"


@pytest.fixture
async def service(world: KubernetesGroups, tmp_path: Path) -> AsyncIterator[Service]:
    """A service, not started yet."""
    world.add("program", "python3", "-c", HOLD_ONCE, pod_template=STAYS)
    made = Service(tmp_path)
    yield made
    await made.stop()


@pytest.fixture
def pods(place: Place, tmp_path: Path) -> Iterator[PodWatch]:
    watch = PodWatch(place.namespace, tmp_path / "pods.json")
    yield watch
    watch.end()


async def interrupted(
    service: Service, world: KubernetesGroups, retry: RetryPolicy, *, is_recorded: bool = False
) -> Job:
    """Return a job whose pods run, left by a service that was killed before it recorded them."""
    store = await SqliteStore.open(service.folder / "jobs.db")
    job = await store.submit(spec(instances=2, retry=retry), utc_now(), None, 1000)
    job = await store.update(job.admitted(utc_now()))
    first = world.open()
    seen = await started(first, job)
    if is_recorded:
        job = await store.update(job.observed(seen.statuses))
    await first.close()
    await store.close()
    return job


@pytest.mark.parametrize("is_recorded", [False, True])
async def test_an_attempt_whose_master_was_deleted_fails_and_the_next_runs_once(
    world: KubernetesGroups, service: Service, place: Place, pods: PodWatch, is_recorded: bool
) -> None:
    job = await interrupted(service, world, ONCE_MORE, is_recorded=is_recorded)
    place.kubectl("delete", "pod", MASTER, *AT_ONCE)
    service.backend = world.open()
    await service.start()
    end = await service.reaches(job.id, JobState.SUCCEEDED)
    # By then, the workers may be deleted like their master.
    causes = {Category.POD_DELETED, Category.GROUP_VANISHED} if is_recorded else {Category.POD_DELETED}
    [(attempt, diagnosis)] = failures(end)
    assert (attempt, end.attempt) == (1, 2)
    assert diagnosis.category in causes
    assert list(pods.problems()) == []
    assert place.left() == []


async def test_an_attempt_without_pods_fails_and_the_next_runs_once(
    world: KubernetesGroups, service: Service, place: Place, pods: PodWatch
) -> None:
    job = await interrupted(service, world, ONCE_MORE, is_recorded=True)
    place.kubectl("delete", "pods", MASTER, WORKER, *AT_ONCE)
    service.backend = world.open()
    await service.start()
    end = await service.reaches(job.id, JobState.SUCCEEDED)
    assert [(attempt, found.category) for attempt, found in failures(end)] == [(1, Category.GROUP_VANISHED)]
    assert list(pods.problems()) == []


async def test_a_job_with_one_attempt_fails_when_its_master_is_deleted(
    world: KubernetesGroups, service: Service, place: Place, pods: PodWatch
) -> None:
    job = await interrupted(service, world, RetryPolicy())
    place.kubectl("delete", "pod", MASTER, *AT_ONCE)
    service.backend = world.open()
    await service.start()
    end = await service.reaches(job.id, JobState.FAILED)
    assert end.diagnosis is not None
    assert (end.diagnosis.category, end.attempt) == (Category.POD_DELETED, 1)
    assert list(pods.problems()) == []


async def test_running_pods_are_adopted_even_after_a_configuration_change(
    world: KubernetesGroups, service: Service, place: Place, pods: PodWatch
) -> None:
    job = await interrupted(service, world, RetryPolicy())
    uid = place.uid("pod", MASTER)
    world.add("program", "python3", "-c", f"# changed\n{HOLD_ONCE}", pod_template=STAYS)
    service.backend = world.open()
    await service.start()
    running = await service.reaches(job.id, JobState.RUNNING)
    assert [rank.phase for rank in running.ranks] == [Phase.RUNNING] * 2
    assert place.uid("pod", MASTER) == uid
    await service.jobs.cancel(BUILT_IN, job.id)
    await service.reaches(job.id, JobState.CANCELLED)
    assert list(pods.problems()) == []


async def test_a_stalled_rank_has_ended_before_it_runs_again(world: KubernetesGroups, pods: PodWatch) -> None:
    world.add("program", "python3", "-c", "import time; time.sleep(1e6)")
    backend = world.open(lost_margin=60.0)  # a node that is only slow does not count as lost
    asked = job(instances=2)
    before = await started(backend, asked)
    stalled = Diagnosis(category=Category.STALLED, summary="It stands still.", resolution="Look.", rank=1)
    again = asked.observed(before.statuses).restarting(1, stalled, utc_now())
    async with asyncio.timeout(PATIENCE):  # kubectl connects in the background
        while all(pod["metadata"]["name"] != WORKER for _, pod in pods.events()):
            await asyncio.sleep(0.1)
    await backend.launch(again)
    await seen(backend, asked.group, lambda o: [rank.status.restarts for rank in o.ranks] == [0, 1])
    await backend.stop(asked.group, timedelta(seconds=1))
    assert pods.settled() == set()
    first, _ = (pod for kind, pod in pods.events() if (kind, pod["metadata"]["name"]) == ("DELETED", WORKER))
    [container] = first["status"]["containerStatuses"]
    assert "running" not in container["state"]
