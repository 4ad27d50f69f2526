"""Groups that others stop with notice: the job is queued again where it stood, and nothing is counted."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from job_tracker.common.clock import utc_now
from job_tracker.domain.eviction import Eviction, EvictionReason
from job_tracker.domain.job import JobState
from job_tracker.domain.policies import RetryPolicy

if TYPE_CHECKING:
    from tests.support.tracked_service import Service
else:
    Service = Any

FOREVER = {"RUN_SECONDS": "forever"}
ONCE = RetryPolicy(max_attempts=1)


def drain(rank: int) -> Eviction:
    return Eviction(why=EvictionReason.DRAINED, at=utc_now(), rank=rank, machine="node-3")


async def test_an_evicted_job_returns_to_its_place_in_the_queue_and_starts_again(service: Service) -> None:
    evicted = await service.submit(FOREVER, instances=4, retry=ONCE)
    running = await service.reaches(evicted.id, JobState.RUNNING)
    behind = await service.submit(FOREVER, instances=4)
    service.world.evict(running.group, 2, drain(2))
    again = await service.until(evicted.id, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
    assert [str(move.state) for move in again.history] == [
        *("queued", "launching", "running", "queued", "launching", "running")
    ]
    assert (again.evictions, again.preemptions, again.last_failure) == (1, 0, None)
    assert (await service.view(behind.id)).job.state is JobState.QUEUED
    service.world.end_rank(again.group, 3, 1)
    failed = await service.reaches(evicted.id, JobState.FAILED)
    assert failed.attempt == 2, "its only attempt that counts has failed now"


async def test_all_ranks_are_stopped_when_one_gets_notice(service: Service) -> None:
    running = await service.reaches((await service.submit(FOREVER, instances=3)).id, JobState.RUNNING)
    await service.submit(FOREVER, instances=4, priority=1)  # the next one
    service.world.evict(running.group, 1, drain(1))
    waiting = await service.reaches(running.id, JobState.QUEUED)
    assert [rank.exit_code for rank in waiting.ranks] == [143] * 3


async def test_the_next_leader_completes_an_eviction(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def held(*_: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    running = await service.reaches((await service.submit(FOREVER, retry=ONCE)).id, JobState.RUNNING)
    with monkeypatch.context() as patched:
        patched.setattr(service.backend, "stop", held)
        service.world.evict(running.group, 0, drain(0))
        await begun.wait()
        await service.stop()
    await service.start()
    again = await service.until(running.id, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
    assert again.evictions == 1


async def test_ranks_that_save_and_leave_after_the_notice_have_not_failed(service: Service) -> None:
    """All ranks agree, and end with the exit code of SIGTERM before the service has stopped them."""
    running = await service.reaches(
        (await service.submit(FOREVER, instances=2, retry=ONCE)).id, JobState.RUNNING
    )
    notice = drain(1)
    found = service.world.live[running.group].ranks
    found[1] = replace(found[1], eviction=notice)
    service.world.end_rank(running.group, 0, 143, at=notice.at.timestamp() + 0.1)
    again = await service.until(running.id, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
    assert (again.evictions, again.last_failure) == (1, None)


async def test_an_eviction_while_no_service_runs_is_found_by_the_next(service: Service) -> None:
    running = await service.reaches((await service.submit(FOREVER, retry=ONCE)).id, JobState.RUNNING)
    await service.stop()
    service.world.evict(running.group, 0, drain(0))
    await service.start()
    again = await service.until(running.id, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
    assert again.evictions == 1
