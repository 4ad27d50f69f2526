"""Elastic jobs that continue with more instances or with fewer, by a stop and another attempt."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from job_tracker.backends.base import Observation
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import Job, JobState, PreemptionReason
from job_tracker.domain.policies import Elastic, RetryPolicy
from job_tracker.scheduling.model import Flavor, PreemptionRules, Queue

if TYPE_CHECKING:
    from tests.support.tracked_service import Service
else:
    Service = Any

FOREVER = {"RUN_SECONDS": "forever"}
DAY = timedelta(days=1)
ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture(autouse=True)
async def often(service: Service) -> None:
    """Let the sizes of jobs change at once."""
    flavor = Flavor(name="default", capacity={"instances": 4})
    queue = Queue(name="default", preemption=PreemptionRules(resize_period=0.001))
    service.pool = lambda: ((flavor,), {"default": queue})
    await service.restart()


async def elastic(service: Service) -> Job:
    return await service.submit(
        FOREVER, instances=4, retry=ONCE, elastic=Elastic(min_instances=1, max_restarts=0), expected=DAY
    )


def of_size(instances: int, attempt: int) -> Callable[[Job], bool]:
    return lambda job: (job.state, job.instances, job.attempt) == (JobState.RUNNING, instances, attempt)


def reasons(job: Job) -> list[PreemptionReason]:
    return [move.preemption.why for move in job.history if move.preemption is not None]


async def test_a_job_grows_when_others_end_and_its_only_attempt_is_still_left(service: Service) -> None:
    other = await service.submit(FOREVER, instances=3, expected=DAY)
    await service.reaches(other.id, JobState.RUNNING)
    job = await elastic(service)
    await service.until(job.id, of_size(1, attempt=1))
    await service.jobs.cancel(BUILT_IN, other.id)
    grown = await service.until(job.id, of_size(4, attempt=2))
    assert reasons(grown) == [PreemptionReason.GROW]
    assert (grown.preemptions, grown.last_failure) == (0, None)
    assert (grown.max_attempts, grown.counted_attempts) == (2, 1)
    service.world.end_rank(grown.group, 3, 1)
    failed = await service.reaches(job.id, JobState.FAILED)
    assert failed.attempt == 2, "its only attempt that counts has failed now"


async def test_a_job_shrinks_for_a_waiting_one_and_both_run(service: Service) -> None:
    job = await elastic(service)
    await service.until(job.id, of_size(4, attempt=1))
    other = await service.submit(FOREVER, instances=2, expected=DAY)
    await service.reaches(other.id, JobState.RUNNING)
    smaller = await service.until(job.id, of_size(2, attempt=2))
    (stop,) = [move.preemption for move in smaller.history if move.preemption is not None]
    assert (stop.by_job, stop.why, stop.trainers) == (other.id, PreemptionReason.SHRINK, 2)
    assert (
        stop.sentence("default") == f"Made smaller: job {other.id} starts with the capacity that this frees."
    )
    assert stop.sentence("other") == "Made smaller: another job starts with the capacity that this frees."


@pytest.mark.parametrize("before", [True, False], ids=["before the stop", "before the return to the queue"])
@pytest.mark.parametrize("grows", [True, False], ids=["grows", "shrinks"])
async def test_the_next_leader_completes_a_change_of_size(
    service: Service, monkeypatch: pytest.MonkeyPatch, before: bool, grows: bool
) -> None:
    stop: Callable[..., Awaitable[Observation | None]] = service.backend.stop
    begun = asyncio.Event()

    async def held(group: GroupRef, *args: Any) -> Observation | None:
        if group.job_id != job.id:
            return await stop(group, *args)
        if not before:
            await stop(group, *args)
        begun.set()
        await asyncio.Event().wait()
        return None

    other = await service.submit(FOREVER, instances=3, expected=DAY) if grows else None
    if other is not None:
        await service.reaches(other.id, JobState.RUNNING)
    job = await elastic(service)
    await service.until(job.id, of_size(1 if grows else 4, attempt=1))
    with monkeypatch.context() as patched:
        patched.setattr(service.backend, "stop", held)
        if other is not None:
            await service.jobs.cancel(BUILT_IN, other.id)
        else:
            await service.submit(FOREVER, instances=2, expected=DAY)
        await begun.wait()
        await service.stop()
    await service.start()
    again = await service.until(job.id, of_size(4 if grows else 2, attempt=2))
    assert len(reasons(again)) == 1


async def test_a_job_that_is_cancelled_while_it_changes_its_size_is_cancelled(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop: Callable[..., Awaitable[Observation | None]] = service.backend.stop
    begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def held(group: GroupRef, *args: Any) -> Observation | None:
        begun.set()
        await may_go_on.wait()
        return await stop(group, *args)

    job = await elastic(service)
    await service.until(job.id, of_size(4, attempt=1))
    monkeypatch.setattr(service.backend, "stop", held)
    other = await service.submit(FOREVER, instances=2, expected=DAY)
    await begun.wait()
    await service.jobs.cancel(BUILT_IN, job.id)
    may_go_on.set()
    assert (await service.reaches(job.id, JobState.CANCELLED)).attempt == 1
    await service.reaches(other.id, JobState.RUNNING)
