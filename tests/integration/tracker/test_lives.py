"""Jobs from submission to each kind of end."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from job_tracker.backends.fake import FakeBackend
from job_tracker.common.clock import utc_now
from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import BackendUnavailable, JobNotFound, LaunchFailed, StorageUnavailable
from job_tracker.domain.group import GroupRef, Phase
from job_tracker.domain.job import Job, JobState
from job_tracker.domain.policies import Elastic
from job_tracker.logs.archive import LogArchive
from job_tracker.store.jobs import JobFilter
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking import cleaning
from tests.support.jobs import NOON, failures

if TYPE_CHECKING:
    from tests.support.tracked_service import Service
else:
    Service = Any

_EVERYTHING = JobFilter()
FOREVER = {"RUN_SECONDS": "forever"}


async def test_a_job_is_launched_runs_and_succeeds(service: Service) -> None:
    job = await service.submit({"RUN_SECONDS": "0.1"}, instances=3)
    job = await service.reaches(job.id, JobState.SUCCEEDED)
    assert [rank.phase for rank in job.ranks] == [Phase.SUCCEEDED] * 3
    assert job.started_at is not None
    assert job.finished_at is not None
    assert (job.attempt, job.diagnosis) == (1, None)
    assert service.world.launches == [job.group]
    assert service.world.live == {}


async def test_the_tracker_does_not_read_back_its_own_writes(service: Service) -> None:
    job = await service.submit({"RUN_SECONDS": "0.1"}, instances=3)
    await service.reaches(job.id, JobState.SUCCEEDED)
    # One for the admission, at most one for each of three observations, and one for the stop of the group.
    assert service.store_calls["get"] <= 5


@pytest.mark.parametrize("state", [JobState.LAUNCHING, JobState.RUNNING])
async def test_a_cancel_right_after_a_write_of_the_tracker_is_not_missed(
    service: Service, monkeypatch: pytest.MonkeyPatch, state: JobState
) -> None:
    update = SqliteStore.update

    async def cancelled_meanwhile(self: SqliteStore, job: Job, **how: Any) -> Job:
        saved = await update(self, job, **how)
        if job.state is state and how.get("by") is not None:
            monkeypatch.undo()
            await service.jobs.cancel(BUILT_IN, job.id)
        return saved

    monkeypatch.setattr(SqliteStore, "update", cancelled_meanwhile)
    await service.restart()
    await service.reaches((await service.submit(FOREVER)).id, JobState.CANCELLED)
    assert service.world.live == {}


async def test_the_failure_of_any_rank_ends_the_job_and_stops_the_others(service: Service) -> None:
    job = await service.submit(FOREVER, instances=3)
    job = await service.reaches(job.id, JobState.RUNNING)
    service.world.end_rank(job.group, 2, 9)
    job = await service.reaches(job.id, JobState.FAILED)
    assert [rank.phase for rank in job.ranks] == [Phase.STOPPED, Phase.STOPPED, Phase.FAILED]
    assert job.diagnosis is not None
    assert (job.diagnosis.category, job.diagnosis.rank) == (Category.CRASHED, 2)
    assert service.world.live == {}


async def test_a_lost_worker_of_an_elastic_group_is_restarted_and_the_log_says_why(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    elastic = Elastic(min_instances=1, max_restarts=3)
    job = await service.reaches((await service.submit(FOREVER, 3, elastic=elastic)).id, JobState.RUNNING)
    service.world.end_rank(job.group, 2, 9)
    job = await service.until(
        job.id, lambda job: [(rank.phase, rank.restarts) for rank in job.ranks][2] == (Phase.RUNNING, 1)
    )
    assert (job.state, job.attempt) == (JobState.RUNNING, 1)
    assert [rank.restarts for rank in job.ranks] == [0, 0, 1]
    assert [(attempt, why.rank, why.summary) for attempt, why in failures(job)] == [
        (1, 2, "Rank 2 exited with code 9.")
    ]
    logged = [record.getMessage() for record in caplog.records if "rank 2" in record.getMessage()]
    assert len(logged) == 1
    assert "Restarting" in logged[0]


async def test_workers_may_end_by_themselves_after_the_master(service: Service) -> None:
    job = await service.reaches((await service.submit(FOREVER, instances=2)).id, JobState.RUNNING)
    service.world.end_rank(job.group, 0, 0)
    job = await service.until(job.id, lambda job: job.ending is not None)
    assert job.state is JobState.RUNNING
    assert job.group in service.world.live
    service.world.end_rank(job.group, 1, 0)
    job = await service.reaches(job.id, JobState.SUCCEEDED)
    assert [rank.phase for rank in job.ranks] == [Phase.SUCCEEDED] * 2


async def test_workers_that_stay_after_the_master_are_stopped(service: Service) -> None:
    service.options["finish_grace"] = timedelta(seconds=0.2)
    await service.restart()
    job = await service.reaches((await service.submit(FOREVER, instances=2)).id, JobState.RUNNING)
    service.world.end_rank(job.group, 0, 0)
    job = await service.reaches(job.id, JobState.SUCCEEDED)
    assert [rank.phase for rank in job.ranks] == [Phase.SUCCEEDED, Phase.STOPPED]


async def test_a_worker_that_fails_after_the_master_succeeded_fails_the_job(service: Service) -> None:
    job = await service.reaches((await service.submit(FOREVER, instances=2)).id, JobState.RUNNING)
    service.world.end_rank(job.group, 0, 0)
    await service.until(job.id, lambda job: job.ending is not None)
    service.world.end_rank(job.group, 1, 6)
    failed = await service.reaches(job.id, JobState.FAILED)
    assert failed.diagnosis is not None
    assert failed.diagnosis.summary == "Rank 1 exited with code 6."
    assert [rank.phase for rank in failed.ranks] == [Phase.SUCCEEDED, Phase.FAILED]


async def test_a_running_group_that_vanishes_fails_its_job(service: Service) -> None:
    service.options["repair_period"] = timedelta(seconds=0.1)
    await service.restart()
    job = await service.reaches((await service.submit(FOREVER)).id, JobState.RUNNING)
    service.world.vanish(job.group)
    job = await service.reaches(job.id, JobState.FAILED)
    assert job.diagnosis is not None
    assert job.diagnosis.category is Category.GROUP_VANISHED


async def test_a_queued_job_is_cancelled_at_once(service: Service) -> None:
    await service.submit(FOREVER, instances=4)
    waiting = await service.submit()
    view = await service.jobs.cancel(BUILT_IN, waiting.id)
    assert view.job.state is JobState.CANCELLED
    assert waiting.group.name not in [group.name for group in service.world.launches]


async def test_a_running_job_is_cancelled_and_its_group_stopped(service: Service) -> None:
    job = await service.reaches((await service.submit(FOREVER, instances=2)).id, JobState.RUNNING)
    for _ in range(2):
        await service.jobs.cancel(BUILT_IN, job.id)
    job = await service.reaches(job.id, JobState.CANCELLED)
    assert [rank.phase for rank in job.ranks] == [Phase.STOPPED] * 2
    assert service.world.live == {}


async def test_cancelling_an_ended_job_changes_nothing(service: Service) -> None:
    job = await service.reaches((await service.submit()).id, JobState.SUCCEEDED)
    assert (await service.jobs.cancel(BUILT_IN, job.id)).job == job


async def test_the_first_decision_stands_but_a_cancel_ends_the_wait_for_workers(service: Service) -> None:
    job = await service.reaches((await service.submit(FOREVER, instances=2)).id, JobState.RUNNING)
    service.world.end_rank(job.group, 0, 0)
    await service.until(job.id, lambda job: job.ending is not None)
    await service.jobs.cancel(BUILT_IN, job.id)
    ended = await service.reaches(job.id, JobState.SUCCEEDED)
    assert [rank.phase for rank in ended.ranks] == [Phase.SUCCEEDED, Phase.STOPPED]


async def test_a_launch_that_cannot_succeed_fails_the_job_with_its_reason(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnosis = Diagnosis(category=Category.NO_FREE_PORT, summary="None.", resolution="Wait.")

    async def refuse(self: FakeBackend, job: object) -> None:
        raise LaunchFailed(diagnosis)

    monkeypatch.setattr(FakeBackend, "launch", refuse)
    job = await service.reaches((await service.submit()).id, JobState.FAILED)
    assert job.diagnosis == diagnosis
    assert job.started_at is None


async def test_a_launch_that_fails_half_way_ends_with_its_reason_although_the_stop_fails_at_first(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnosis = Diagnosis(category=Category.NO_FREE_PORT, summary="None.", resolution="Wait.")
    launch, stop, failures = FakeBackend.launch, FakeBackend.stop, [BackendUnavailable("away")]

    async def refuse(self: FakeBackend, job: Any) -> None:
        await launch(self, job)
        raise LaunchFailed(diagnosis)

    async def unreliable(self: FakeBackend, *how: Any) -> Any:
        if failures:
            raise failures.pop()
        return await stop(self, *how)

    monkeypatch.setattr(FakeBackend, "launch", refuse)
    monkeypatch.setattr(FakeBackend, "stop", unreliable)
    job = await service.reaches((await service.submit(FOREVER)).id, JobState.FAILED)
    assert (job.diagnosis, failures, service.world.live) == (diagnosis, [], {})


async def test_the_tracker_waits_for_an_unavailable_backend(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, failures = FakeBackend.launch, [BackendUnavailable("away"), RuntimeError("a bug")]

    async def unreliable(self: FakeBackend, plan: Any) -> Any:
        if failures:
            raise failures.pop()
        return await launch(self, plan)

    monkeypatch.setattr(FakeBackend, "launch", unreliable)
    await service.reaches((await service.submit()).id, JobState.SUCCEEDED)


async def test_a_group_that_no_live_job_owns_is_stopped(service: Service) -> None:
    job = await service.reaches((await service.submit()).id, JobState.SUCCEEDED)
    stranger = GroupRef("program-77", 77, 1)
    for group in (job.group, stranger):
        running = await service.submit(FOREVER)
        strange = await service.reaches(running.id, JobState.RUNNING)
        await service.backend.launch(replace(strange, id=group.job_id, attempt=group.attempt))
    await service.restart()
    third = await service.submit()
    await service.reaches(third.id, JobState.SUCCEEDED)
    while {job.group, stranger} & set(service.world.live):
        await service.until(third.id, lambda job: True)
    assert len(service.world.live) == 2


async def test_ended_jobs_are_deleted_after_their_time(service: Service) -> None:
    job = await service.reaches((await service.submit()).id, JobState.SUCCEEDED)
    assert await service.archive.has(job.group, 0)
    service.options["keep_finished"] = timedelta(0)
    with service.store.changes():
        await service.restart()
    await nothing_remains(service, job)
    running = await service.submit()
    await service.reaches(running.id, JobState.SUCCEEDED)
    assert [known.id for known in (await service.store.list_jobs(_EVERYTHING, limit=9)).jobs] == [running.id]


async def test_old_audit_events_are_deleted_in_batches(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "_EVENTS_BATCH", 2)
    now = utc_now()
    old, fresh = (
        AuditEvent(at=now - age, action="logs", outcome=Outcome.READ)
        for age in (timedelta(hours=3), timedelta(hours=1))
    )
    await service.store.add_events([*[old] * 5, fresh])
    service.options["keep_events"] = timedelta(hours=2)
    await service.restart()
    while len(left := await service.store.events_after(0, 9)) > 1:
        pass
    assert [event.at for event in left] == [fresh.at]


async def nothing_remains(service: Service, job: Job) -> None:
    """Wait until the tracker has removed what remained of a deleted job."""
    while await service.archive.has(job.group, 0) or await service.store.remains(1):
        await asyncio.sleep(0.01)
    with pytest.raises(JobNotFound):
        await service.store.get(job.id)


async def test_what_remains_of_a_deleted_job_is_removed_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.options |= {
        "repair_period": timedelta(seconds=0.05),
        "keep_failed_group": timedelta(hours=1),
    }
    await service.restart()
    job = await service.reaches((await service.submit({"EXIT_CODE": "1"})).id, JobState.FAILED)
    other = await service.reaches((await service.submit({"EXIT_CODE": "1"})).id, JobState.FAILED)
    failed = asyncio.Event()

    async def unavailable(_archive: LogArchive, _folder: str) -> None:
        failed.set()
        raise StorageUnavailable("the storage is down")

    with monkeypatch.context() as down:
        down.setattr(LogArchive, "delete", unavailable)
        await service.jobs.delete(BUILT_IN, job.id)
        with pytest.raises(JobNotFound):
            await service.jobs.get(BUILT_IN, job.id)
        await failed.wait()
    assert await service.store.remains(9) == [job.remains], "known until its logs are gone"
    await service.restart()
    await nothing_remains(service, job)
    assert set(service.world.kept) == {other.group}
    assert await service.archive.has(other.group, 0)


@pytest.mark.parametrize(
    ("kept", "code", "state"),
    [
        ("keep_failed_group", "1", JobState.FAILED),
        ("keep_succeeded_group", "0", JobState.SUCCEEDED),
    ],
)
async def test_a_group_is_kept_as_long_as_its_outcome_requires(
    service: Service, kept: str, code: str, state: JobState
) -> None:
    service.options[kept] = timedelta(hours=1)
    await service.restart()
    ends = {"0": JobState.SUCCEEDED, "1": JobState.FAILED}
    jobs = {other: await service.submit({"EXIT_CODE": other}) for other in ends}
    for other, job in jobs.items():
        await service.reaches(job.id, ends[other])
    job = await service.reaches(jobs[code].id, state)
    assert job.ending is not None
    assert service.world.kept == {job.group: job.ending.decided_at + timedelta(hours=1)}

    service.world.kept[job.group] = NOON
    await service.restart()
    await service.reaches((await service.submit({"EXIT_CODE": "0"})).id, JobState.SUCCEEDED)
    assert job.group not in service.world.kept
    assert await service.store.get(job.id) == job


async def test_nothing_is_kept_of_a_cancelled_job(service: Service) -> None:
    service.options |= dict.fromkeys(("keep_failed_group", "keep_succeeded_group"), timedelta(hours=1))
    await service.restart()
    job = await service.reaches((await service.submit(FOREVER)).id, JobState.RUNNING)
    await service.jobs.cancel(BUILT_IN, job.id)
    await service.reaches(job.id, JobState.CANCELLED)
    assert service.world.kept == {}


async def test_the_reports_of_the_master_are_the_progress_of_the_job(service: Service) -> None:
    line = '::progress:: {"step": 3, "total_steps": 9, "metrics": {"loss": 0.5}}'
    job = await service.submit({"PRINT": line, "RUN_SECONDS": "0.2"})
    job = await service.reaches(job.id, JobState.SUCCEEDED)
    assert job.progress is not None
    assert (job.progress.step, job.progress.total_steps, job.progress.metrics) == (3, 9, {"loss": 0.5})
