"""The contract of stores: submissions, reads and guarded updates."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import IllegalMove, JobNotFound, LimitExceeded, RequestKeyConflict, StaleJob
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import TRANSITIONS, Ending, Job, JobState
from job_tracker.domain.job_spec import Program
from job_tracker.domain.pace import Activity, RankPace
from job_tracker.domain.policies import Deadlines, RetryPolicy
from job_tracker.domain.progress import Progress
from job_tracker.domain.telemetry import AttemptReport
from job_tracker.store.base import Store
from job_tracker.store.jobs import RequestKey
from tests.support.jobs import NOON, failures, spec
from tests.support.stores import Reopen

MANY = 1_000_000


async def submit(store: Store, **changes: object) -> Job:
    return await store.submit(spec(**changes), NOON, None, MANY)  # type: ignore[arg-type]


async def test_ids_start_at_one_and_increase(store: Store) -> None:
    assert [(await submit(store)).id for _ in range(3)] == [1, 2, 3]


async def test_a_submitted_job_is_queued_and_read_back_whole(store: Store, reopen: Reopen) -> None:
    program = Program(tree="a" * 64, environment={"MODE": "größe"})
    wanted = spec({"LR": "4", "NAME": "größe"}, instances=3, name="größe", program=program)
    job = await store.submit(wanted, NOON, None, MANY)
    assert (job.state, job.spec, job.submitted_at, job.attempt) == (JobState.QUEUED, wanted, NOON, 0)
    assert await store.get(job.id) == job
    assert await (await reopen()).get(job.id) == job


RETRYABLE = Diagnosis(category=Category.NODE_LOST, summary="Lost.", resolution="Wait.", retryable=True)


async def report(store: Store, job_id: int, attempt: int, **given: Any) -> bool:
    [accepted] = await store.record_reports([AttemptReport(job_id=job_id, attempt=attempt, at=NOON, **given)])
    return accepted


async def back_in_queue(store: Store, job: Job) -> Job:
    job = await store.update(job.ended(Ending(JobState.BACKOFF, NOON, RETRYABLE), NOON))
    return await store.update(job.queued_again(NOON))


async def test_an_unknown_job_is_not_found(store: Store) -> None:
    for job_id in (0, -1, 1, 2**31 - 1, 2**40):
        with pytest.raises(JobNotFound, match=f"Job {job_id} doesn't exist"):
            await store.get(job_id)


async def test_an_update_is_read_back_whole(store: Store, reopen: Reopen) -> None:
    job = (await submit(store, instances=2)).admitted(NOON)
    job = await store.update(job)
    ranks = (RankStatus(0, Phase.RUNNING), RankStatus(1, Phase.FAILED, 137))
    job = await store.update(job.observed(ranks).running(NOON + timedelta(seconds=1)))
    diagnosis = Diagnosis(
        category=Category.KILLED, summary="It\nwas.", resolution="Do.", detail="…", retryable=True, rank=1
    )
    job = await store.update(job.decided(Ending(JobState.FAILED, NOON, diagnosis)))
    assert job.ending is not None
    assert await store.get(job.id) == job
    job = await store.update(job.ended(job.ending, NOON + timedelta(microseconds=1)))
    assert await (await reopen()).get(job.id) == job
    assert job.ranks == (RankStatus(0, Phase.STOPPED), RankStatus(1, Phase.FAILED, 137))


async def test_an_update_of_an_older_version_is_refused_and_changes_nothing(store: Store) -> None:
    job = await submit(store)
    winner = await store.update(job.admitted(NOON))
    with pytest.raises(StaleJob):
        await store.update(job.ended(Ending(JobState.CANCELLED, NOON), NOON))
    assert await store.get(job.id) == winner


async def test_one_of_many_concurrent_updates_wins(store: Store) -> None:
    job = await submit(store)
    results = await asyncio.gather(
        *(store.update(job.admitted(NOON)) for _ in range(20)), return_exceptions=True
    )
    winners = [result for result in results if isinstance(result, Job)]
    assert len(winners) == 1
    assert sum(isinstance(result, StaleJob) for result in results) == 19
    assert await store.get(job.id) == winners[0]


async def test_an_update_of_an_unknown_job_is_refused(store: Store) -> None:
    job = await submit(store)
    with pytest.raises(JobNotFound):
        await store.update(replace(job.admitted(NOON), id=99))


@pytest.mark.parametrize("source", JobState)
@pytest.mark.parametrize("target", JobState)
async def test_only_moves_in_the_table_are_stored(store: Store, source: JobState, target: JobState) -> None:
    job = await submit(store)
    if source is not JobState.QUEUED:
        path = {
            JobState.LAUNCHING: [JobState.LAUNCHING],
            JobState.CANCELLED: [JobState.CANCELLED],
            JobState.FAILED: [JobState.FAILED],
            JobState.BACKOFF: [JobState.LAUNCHING, JobState.BACKOFF],
        }.get(source, [JobState.LAUNCHING, JobState.RUNNING, source][: 2 + source.is_terminal])
        for state in path:
            job = await store.update(replace(job, state=state))
    wanted = replace(job, state=target)
    if target in TRANSITIONS[source] or (source is target and not source.is_terminal):
        assert (await store.update(wanted)).state is target
    else:
        with pytest.raises(IllegalMove):
            await store.update(wanted)
        assert await store.get(job.id) == job


async def test_the_same_request_gives_the_same_job(store: Store, reopen: Reopen) -> None:
    key = RequestKey("k", b"digest")
    first = await store.submit(spec(), NOON, key, MANY)
    again = [store.submit(spec(), NOON, key, MANY) for _ in range(10)]
    assert {job.id for job in await asyncio.gather(*again)} == {first.id}
    assert await store.find_submitted(key) == first
    store = await reopen()
    assert (await store.submit(spec(), NOON, key, MANY)).id == first.id
    assert (await submit(store)).id == first.id + 1


async def test_a_new_key_submitted_many_times_at_once_makes_one_job(store: Store) -> None:
    key = RequestKey("k", b"digest")
    jobs = await asyncio.gather(*(store.submit(spec(), NOON, key, MANY) for _ in range(20)))
    assert {job.id for job in jobs} == {1}


async def test_a_key_used_for_another_request_is_refused(store: Store) -> None:
    await store.submit(spec(), NOON, RequestKey("k", b"one"), MANY)
    for attempt in (
        store.submit(spec(), NOON, RequestKey("k", b"two"), MANY),
        store.find_submitted(RequestKey("k", b"two")),
    ):
        with pytest.raises(RequestKeyConflict, match="job 1"):
            await attempt
    assert await store.find_submitted(RequestKey("other", b"one")) is None
    assert (await submit(store)).id == 2


async def test_a_full_queue_refuses_jobs_until_one_has_left_it(store: Store) -> None:
    jobs = [await store.submit(spec(), NOON, None, 2) for _ in range(2)]
    with pytest.raises(LimitExceeded, match="2 jobs are queued"):
        await store.submit(spec(), NOON, None, 2)
    await store.update(jobs[0].admitted(NOON))
    assert (await store.submit(spec(), NOON, None, 2)).id == 3


async def test_progress_does_not_change_the_version_of_the_job(store: Store, reopen: Reopen) -> None:
    job = await store.update((await submit(store)).admitted(NOON))
    paces = (
        RankPace(0, 3, Activity.SAVING, NOON, 1.5, 0.5),
        RankPace(1, heard_at=NOON, slowness=1.3, slow_since=NOON),
    )
    progress = Progress(3, 10, 1, 2, {"loss": 0.5}, NOON, ranks=paces)
    await report(store, job.id, 1, progress=progress)
    stored = await store.get(job.id)
    assert (stored.progress, stored.version) == (progress, job.version)
    job = await store.update(job.running(NOON))
    assert (await (await reopen()).get(job.id)).progress == progress


async def test_an_attempt_begins_without_the_progress_of_the_previous_one(store: Store) -> None:
    job = await store.update((await submit(store)).admitted(NOON))
    await report(store, job.id, 1, progress=Progress(step=3))
    job = await back_in_queue(store, job)
    assert (await store.get(job.id)).progress == Progress(step=3)
    job = await store.update(job.admitted(NOON))
    assert (await store.get(job.id)).progress is None


async def test_a_failed_attempt_is_read_back_whole(store: Store, reopen: Reopen) -> None:
    policy = RetryPolicy(max_attempts=3, backoff=timedelta(seconds=7), retry_on=(Category.CRASHED,))
    deadlines = Deadlines(queue=timedelta(seconds=60), run=timedelta(days=2))
    job = await store.submit(spec(retry=policy, deadlines=deadlines), NOON, None, MANY)
    assert job.due_at == NOON + timedelta(seconds=60)
    assert await store.get(job.id) == job
    job = await store.update(job.admitted(NOON))
    job = await store.update(job.running(NOON + timedelta(seconds=1)))
    failed = job.failed(RETRYABLE, NOON + timedelta(seconds=2))
    assert failed.ending is not None
    job = await store.update(failed.ended(failed.ending, NOON + timedelta(seconds=3)))
    assert (job.state, job.due_at) == (JobState.BACKOFF, NOON + timedelta(seconds=10))
    assert failures(job) == [(1, RETRYABLE)]
    assert [(move.state, move.attempt) for move in job.history] == [
        (JobState.QUEUED, 0),
        (JobState.LAUNCHING, 1),
        (JobState.RUNNING, 1),
        (JobState.BACKOFF, 1),
    ]
    assert await (await reopen()).get(job.id) == job


async def test_progress_of_an_attempt_that_is_not_live_is_ignored(store: Store) -> None:
    job = await submit(store)
    progress = Progress(step=1)
    await report(store, job.id, 0, progress=progress)
    await report(store, 99, 1, progress=progress)
    job = await store.update(job.admitted(NOON))
    await report(store, job.id, 2, progress=progress)
    assert (await store.get(job.id)).progress is None
    before = NOON - timedelta(seconds=1)
    await store.update(job.ended(Ending(JobState.FAILED, before), before))
    assert not await report(store, job.id, 1, progress=progress)
    assert (await store.get(job.id)).progress is None


async def test_a_report_from_before_the_end_counts_even_if_it_is_written_later(
    store: Store,
) -> None:
    job = await store.update((await submit(store)).admitted(NOON))
    later = NOON + timedelta(seconds=1)
    await store.update(job.ended(Ending(JobState.FAILED, later), later))
    assert await report(store, job.id, 1, progress=Progress(step=9))
    assert (await store.get(job.id)).progress == Progress(step=9)


async def test_skipped_ids_are_not_given(store: Store, reopen: Reopen) -> None:
    assert await store.skip_ids(beyond=0, number=10) == 10
    assert (await submit(store)).id == 11
    assert await store.skip_ids(beyond=5, number=10) == 21
    assert await store.skip_ids(beyond=50, number=10) == 60
    assert (await submit(await reopen())).id == 61
