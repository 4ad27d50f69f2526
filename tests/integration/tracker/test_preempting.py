"""Running jobs that are stopped for waiting ones: the notice, the way back, and what may interfere."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from job_tracker.backends.base import Observation
from job_tracker.common.clock import utc_now
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import Job, JobState, Preemption, PreemptionReason
from job_tracker.domain.policies import Elastic, RetryPolicy
from job_tracker.reports.lines import parse
from job_tracker.scheduling.model import Flavor, PreemptionRules, Queue

if TYPE_CHECKING:
    from tests.support.tracked_service import Service
else:
    Service = Any

FOREVER = {"RUN_SECONDS": "forever"}
ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture(autouse=True)
async def by_priority(service: Service) -> None:
    flavor = Flavor(name="default", capacity={"instances": 4})
    queue = Queue(name="default", preemption=PreemptionRules(by_priority=True))
    service.pool = lambda: ((flavor,), {"default": queue})
    await service.restart()


async def running(service: Service, instances: int = 4, **changes: Any) -> Job:
    job = await service.submit(FOREVER, instances=instances, retry=ONCE, **changes)
    return await service.reaches(job.id, JobState.RUNNING)


async def urgent(service: Service, instances: int = 4) -> Job:
    return await service.submit(FOREVER, instances=instances, priority=100, retry=ONCE)


def moves(job: Job) -> list[str]:
    return [str(move.state) for move in job.history]


def hold_stops(
    service: Service, monkeypatch: pytest.MonkeyPatch, *, before: bool = True, of: int | None = None
) -> tuple[asyncio.Event, asyncio.Event]:
    """Let each stop of a group wait for an event, before or after it takes effect. Return the events "has
    begun" and "may go on".

    `of` is the only job whose groups wait; None: those of all jobs.
    """
    stop: Callable[..., Awaitable[Observation | None]] = service.backend.stop
    begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def held(group: GroupRef, *args: Any) -> Observation | None:
        if of not in (None, group.job_id):
            return await stop(group, *args)
        seen = None if before else await stop(group, *args)
        begun.set()
        await may_go_on.wait()
        return await stop(group, *args) if before else seen

    monkeypatch.setattr(service.backend, "stop", held)
    return begun, may_go_on


async def test_a_job_gives_way_and_goes_on_afterwards_where_it_stood(service: Service) -> None:
    victim = await running(service)
    behind = await service.submit(FOREVER)
    other = await urgent(service)
    await service.reaches(other.id, JobState.RUNNING)
    waiting = await service.reaches(victim.id, JobState.QUEUED)
    assert waiting.preemption == Preemption(
        by_job=other.id, why=PreemptionReason.PRIORITY, by_project="default"
    )
    assert (await service.view(victim.id)).position == 0
    assert (await service.view(behind.id)).position == 1
    await service.jobs.cancel(BUILT_IN, other.id)
    again = await service.reaches(victim.id, JobState.RUNNING)
    assert (again.attempt, again.preemptions, again.last_failure) == (2, 1, None)
    assert moves(again) == ["queued", "launching", "running", "queued", "launching", "running"]
    service.world.end_rank(again.group, 3, 1)
    failed = await service.reaches(victim.id, JobState.FAILED)
    assert failed.attempt == 2, "its only attempt that counts has failed now"


async def test_the_decision_is_stored_before_the_notice(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = hold_stops(service, monkeypatch)
    victim = await running(service)
    other = await urgent(service)
    await begun.wait()
    stored = await service.store.get(victim.id)
    assert stored.ending is not None
    assert stored.ending.state is JobState.QUEUED
    assert stored.ending.preemption is not None
    assert stored.ending.preemption.by_job == other.id
    small = await service.submit(FOREVER, priority=50)
    may_go_on.set()
    await service.reaches(other.id, JobState.RUNNING)
    assert (await service.view(small.id)).job.state is JobState.QUEUED


@pytest.mark.parametrize("before", [True, False], ids=["before the stop", "before the return to the queue"])
async def test_the_next_leader_completes_a_preemption(
    service: Service, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    victim = await running(service)
    with monkeypatch.context() as patched:
        begun, _ = hold_stops(service, patched, before=before)
        other = await urgent(service)
        await begun.wait()
        await service.stop()
    await service.start()
    await service.reaches(other.id, JobState.RUNNING)
    assert (await service.view(victim.id)).job.preemptions == 1
    await service.jobs.cancel(BUILT_IN, other.id)
    assert (await service.reaches(victim.id, JobState.RUNNING)).attempt == 2


async def test_the_next_leader_keeps_what_was_freed_for_the_job(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two victims has left when the leader dies, while a small job waits, too."""
    stop: Callable[..., Awaitable[Observation | None]] = service.backend.stop
    slow = await running(service, instances=2)
    quick = await running(service, instances=2)

    async def only_quick(group: GroupRef, *args: Any) -> Observation | None:
        if group.job_id == slow.id:
            await asyncio.Event().wait()
        return await stop(group, *args)

    with monkeypatch.context() as patched:
        patched.setattr(service.backend, "stop", only_quick)
        other = await urgent(service)
        await service.reaches(quick.id, JobState.QUEUED)
        await service.stop()
    await service.start()
    await service.reaches(other.id, JobState.RUNNING)
    for job in (slow, quick):
        seen = (await service.view(job.id)).job
        assert (seen.state, seen.attempt) == (JobState.QUEUED, 1)


@pytest.mark.parametrize("ends", ["during its notice", "in the queue"])
async def test_the_next_leader_keeps_what_an_ended_victim_has_freed_for_the_job(
    service: Service, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Without the claim, the job of the other queue would start, because no job of that queue runs."""
    flavor = Flavor(name="default", capacity={"instances": 6})
    queues = (
        Queue(name="default", preemption=PreemptionRules(by_priority=True)),
        Queue(name="unused"),
    )
    service.pool = lambda: ((flavor,), {each.name: each for each in queues})
    await service.restart()
    await running(service, instances=2, priority=100)
    victim = await running(service)
    with monkeypatch.context() as patched:
        begun, may_go_on = hold_stops(service, patched)
        other = await urgent(service)
        await begun.wait()
        patched.setattr(service.tracker._admitting, "run", asyncio.Event().wait)  # no job starts any more
        if ends == "during its notice":
            await service.jobs.cancel(BUILT_IN, victim.id)
        may_go_on.set()
        if ends == "in the queue":
            await service.reaches(victim.id, JobState.QUEUED)
            await service.jobs.cancel(BUILT_IN, victim.id)
        await service.reaches(victim.id, JobState.CANCELLED)
        rival = await service.submit(FOREVER, instances=4, queue="unused")
        await service.stop()
    await service.start()
    first, second = (
        asyncio.create_task(service.reaches(each.id, JobState.RUNNING)) for each in (other, rival)
    )
    await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
    assert (first.done(), second.done()) == (True, False)
    await service.jobs.cancel(BUILT_IN, other.id)
    await second


async def test_a_victim_that_succeeds_meanwhile_has_succeeded(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = hold_stops(service, monkeypatch)
    victim = await running(service)
    other = await urgent(service)
    await begun.wait()
    for rank in range(4):
        service.world.end_rank(victim.group, rank, 0)
    may_go_on.set()
    ended = await service.reaches(victim.id, JobState.SUCCEEDED)
    assert (ended.attempt, ended.preemptions) == (1, 0)
    await service.reaches(other.id, JobState.RUNNING)


async def test_a_victim_that_fails_meanwhile_has_failed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = hold_stops(service, monkeypatch)
    victim = await running(service)
    other = await urgent(service)
    await begun.wait()
    service.world.end_rank(victim.group, 1, 3)
    may_go_on.set()
    assert (await service.reaches(victim.id, JobState.FAILED)).preemptions == 0
    await service.reaches(other.id, JobState.RUNNING)


async def test_a_victim_whose_save_fails_during_the_notice_has_not_failed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It continues from an earlier checkpoint."""
    begun, may_go_on = hold_stops(service, monkeypatch)
    victim = await running(service)
    other = await urgent(service)
    await begun.wait()
    service.world.end_rank(victim.group, 2, 1, at=utc_now().timestamp())
    may_go_on.set()
    await service.reaches(other.id, JobState.RUNNING)
    await service.jobs.cancel(BUILT_IN, other.id)
    again = await service.reaches(victim.id, JobState.RUNNING)
    assert (again.attempt, again.preemptions, again.last_failure) == (2, 1, None)


async def test_capacity_that_comes_back_meanwhile_serves_both(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notice is not taken back, so the victim is stopped, and starts again at once."""
    begun, may_go_on = hold_stops(service, monkeypatch)
    victim = await running(service)
    other = await urgent(service)
    await begun.wait()
    assert service.pool is not None
    (flavor,), queues = service.pool()
    more = replace(flavor, capacity={"instances": 8})
    service.tracker._admitting._board._pool = lambda: ((more,), queues)
    service.tracker.capacity_changed()
    may_go_on.set()
    await service.reaches(other.id, JobState.RUNNING)
    again = await service.until(victim.id, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
    assert again.preemptions == 1


async def test_a_victim_can_be_cancelled_meanwhile(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go_on = hold_stops(service, monkeypatch)
    victim = await running(service)
    other = await urgent(service)
    await begun.wait()
    await service.jobs.cancel(BUILT_IN, victim.id)
    may_go_on.set()
    await service.reaches(victim.id, JobState.CANCELLED)
    await service.reaches(other.id, JobState.RUNNING)


async def test_a_preemptor_that_is_cancelled_meanwhile_leaves_the_capacity_to_the_victim(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = hold_stops(service, monkeypatch)
    victim = await running(service)
    other = await urgent(service)
    await begun.wait()
    await service.jobs.cancel(BUILT_IN, other.id)
    may_go_on.set()
    again = await service.until(victim.id, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
    assert again.preemptions == 1


async def test_a_job_that_is_being_launched_can_be_preempted(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, begun, may_go_on = service.backend.launch, asyncio.Event(), asyncio.Event()

    async def held(job: Job) -> Observation:
        if job.spec.priority == 0 and not begun.is_set():
            begun.set()
            await may_go_on.wait()
        return await launch(job)

    monkeypatch.setattr(service.backend, "launch", held)
    victim = await service.submit(FOREVER, instances=4, retry=ONCE)
    await begun.wait()
    other = await urgent(service)
    await service.until(victim.id, lambda job: job.ending is not None)
    may_go_on.set()
    await service.reaches(other.id, JobState.RUNNING)
    assert moves((await service.view(victim.id)).job) == ["queued", "launching", "queued"]


async def test_an_elastic_job_goes_on_with_fewer_instances(service: Service) -> None:
    victim = await running(service, elastic=Elastic(min_instances=1))
    other = await urgent(service, instances=2)
    await service.reaches(other.id, JobState.RUNNING)
    again = await service.until(victim.id, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
    assert (again.instances, again.preemptions) == (2, 0)
    assert again.history[3].preemption is not None
    assert again.history[3].preemption.trainers == 2


@pytest.mark.parametrize("leader", ["stays", "dies before the stop", "dies before the return to the queue"])
async def test_what_a_job_grows_into_is_kept_for_it_while_it_stops(
    service: Service, monkeypatch: pytest.MonkeyPatch, leader: str
) -> None:
    day = timedelta(days=1)
    rules = PreemptionRules(resize_period=0.001)
    flavor = Flavor(name="default", capacity={"instances": 4})
    service.pool = lambda: ((flavor,), {"default": Queue(name="default", preemption=rules)})
    await service.restart()
    other = await running(service, 3)
    grows = await running(service, 4, elastic=Elastic(min_instances=1), expected=day)
    assert grows.instances == 1
    with monkeypatch.context() as patched:
        begun, may_go_on = hold_stops(
            service, patched, before=leader != "dies before the return to the queue", of=grows.id
        )
        await service.jobs.cancel(BUILT_IN, other.id)
        stopping = await service.until(grows.id, lambda job: job.ending is not None)
        late = await service.submit(FOREVER, instances=2, priority=100)
        await begun.wait()
        passes = service.tracker.passes
        while leader == "stays" and service.tracker.passes < passes + 2:
            service.tracker.capacity_changed()
            await asyncio.sleep(0.01)
        if leader == "stays":
            may_go_on.set()
            await service.until(grows.id, lambda job: job.attempt == 2)
        else:
            await service.stop()
    if leader != "stays":
        await service.start()
    assert stopping.preemption == Preemption(
        by_job=0, why=PreemptionReason.GROW, trainers=4, flavor="default"
    )
    larger = await service.until(grows.id, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
    assert (larger.instances, larger.preemptions) == (4, 0)
    assert (await service.view(late.id)).job.state is JobState.QUEUED


async def test_a_job_that_shrinks_for_one_that_is_cancelled_meanwhile_goes_on_with_all(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = hold_stops(service, monkeypatch)
    victim = await running(service, elastic=Elastic(min_instances=1))
    other = await urgent(service, instances=2)
    await begun.wait()
    await service.jobs.cancel(BUILT_IN, other.id)
    may_go_on.set()
    again = await service.until(victim.id, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
    assert again.instances == 4


async def test_a_job_that_shrinks_while_capacity_is_lost_goes_on_with_what_there_is(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the capacity is back, it grows again."""
    begun, may_go_on = hold_stops(service, monkeypatch)
    victim = await running(service, elastic=Elastic(min_instances=1), expected=timedelta(days=1))
    other = await urgent(service, instances=1)
    await begun.wait()
    assert service.pool is not None
    (flavor,), queues = service.pool()
    rules = replace(queues["default"].preemption, resize_period=0.001)
    board = service.tracker._admitting._board
    board._pool = lambda: (
        (replace(flavor, capacity={"instances": 3}),),
        {"default": replace(queues["default"], preemption=rules)},
    )
    may_go_on.set()
    await service.reaches(other.id, JobState.RUNNING)
    again = await service.until(victim.id, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
    assert again.instances == 2
    pool = board._pool()
    board._pool = lambda: ((flavor,), pool[1])
    service.tracker.capacity_changed()
    larger = await service.until(victim.id, lambda job: job.attempt == 3 and job.state is JobState.RUNNING)
    assert (larger.instances, larger.preemptions) == (3, 0)


async def test_the_job_that_has_just_saved_is_stopped(service: Service) -> None:
    first = await running(service, instances=2)
    second = await running(service, instances=2)
    line = '::artifact:: {"name": "c", "kind": "checkpoint", "uri": "/c/step-7"}'
    report = parse(line, first.history[-1].at + timedelta(hours=1), 7)
    assert report is not None
    await service.reports.take((first.id, 1), report)
    await service.reports.write()
    await service.restart()  # a new leader reads the report from the store, before it plans
    other = await urgent(service, instances=2)
    await service.reaches(other.id, JobState.RUNNING)
    assert (await service.view(first.id)).job.preemptions == 1
    assert (await service.view(second.id)).job.preemptions == 0
