"""The keys of report tokens are rotated and removed while ranks report, on both stores."""

import asyncio
from typing import Any

import grpc
import pytest

from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.reports import ReportKeys, ReportTokens
from tests.support.access import Entry, failure
from tests.support.api_service import Serve, Service
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE
from training_service._generated import access_service_pb2 as apb
from training_service._generated import training_reporter_pb2 as rpb
from training_service._generated.training_reporter_pb2_grpc import TrainingReporterStub

RANKS, REPORTS = 64, 3


@pytest.fixture
async def service(serve: Serve, opener: Any) -> Service:
    store = [] if opener is None else [opener]
    return await serve(*store, tracked=False, auth={"loopback": "token"})


@pytest.fixture
def entry(service: Service) -> Entry:
    return Entry(service)


async def live(service: Service) -> Job:
    job = await service.store.submit(spec(), NOON, None, 1000)
    return await service.store.update(job.admitted(NOON))


def report(service: Service, token: str, step: int) -> Any:
    request = rpb.ReportRequest(step=step, metrics=[rpb.MetricValue(name="loss", value=step, step=step)])
    sent = (("authorization", f"Bearer {token}"),)
    return TrainingReporterStub(service.channel).Report(request, metadata=sent, timeout=PATIENCE)


async def rotate(entry: Entry) -> apb.ReportKey:
    made: apb.ReportKey = await entry.stub.RotateReportKey(
        apb.RotateReportKeyRequest(), metadata=entry.operator
    )
    return made


def remove(entry: Entry, key_id: int) -> Any:
    return entry.stub.RemoveReportKey(apb.RemoveReportKeyRequest(id=key_id), metadata=entry.operator)


async def listed(entry: Entry) -> list[tuple[int, int]]:
    """The ids of the keys, each with the number of its attempts."""
    answer = await entry.stub.ListReportKeys(apb.ListReportKeysRequest(), metadata=entry.operator)
    return [(key.id, key.attempts) for key in answer.keys]


async def test_a_rotation_among_many_reports_loses_none(service: Service, entry: Entry) -> None:
    jobs = [await live(service) for _ in range(RANKS)]
    tokens = {job.id: service.tokens.issue(job.id, 1) for job in jobs}

    async def reports(job: Job) -> None:
        for step in range(REPORTS):
            answer = await report(service, tokens[job.id], step)
            assert not answer.problems

    async def rotations() -> None:
        assert [(await rotate(entry)).id for _ in range(2)] == [2, 3]

    await asyncio.gather(*map(reports, jobs), rotations())
    await asyncio.gather(*(report(service, tokens[job.id], REPORTS) for job in jobs))
    await service.reports.write()
    for job in jobs:
        [series] = await service.store.metrics(job.id)
        assert sorted(point.step for point in series.points) == list(range(REPORTS + 1))
    assert await listed(entry) == [(1, RANKS), (2, RANKS), (3, 0)]


async def test_a_key_goes_with_the_last_attempt_that_uses_it(service: Service, entry: Entry) -> None:
    job = await live(service)
    made = await rotate(entry)
    assert (made.id, made.made_by, made.attempts) == (2, "operator", 0)
    assert made.HasField("made_at")
    later = await live(service)
    token = service.tokens.issue(later.id, 1)
    assert token.split(".")[2] == "2"
    await report(service, token, 1)
    assert await listed(entry) == [(1, 1), (2, 0)]
    await service.store.update(job.ended(Ending(JobState.FAILED, NOON), NOON))
    assert await listed(entry) == [(2, 0)]
    await report(service, token, 2)


async def test_a_removed_key_is_refused_at_once_with_a_clear_message(service: Service, entry: Entry) -> None:
    job = await live(service)
    token = service.tokens.issue(job.id, 1)
    await rotate(entry)
    await report(service, token, 1)
    removed = await remove(entry, 1)
    assert (removed.id, removed.attempts, removed.HasField("removed_at")) == (1, 1, True)
    code, details = await failure(report(service, token, 2))
    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert "an operator removed key 1 of report tokens at" in details
    await report(service, service.tokens.issue(job.id, 1), 3)


async def test_keys_that_cannot_be_removed_are_named(service: Service, entry: Entry) -> None:
    await live(service)
    assert await failure(remove(entry, 1)) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "report key 1 is the current key; rotate the keys first",
    )
    await rotate(entry)
    assert await failure(remove(entry, 9)) == (
        grpc.StatusCode.NOT_FOUND,
        "id: report key 9 doesn't exist; allowed: 1",
    )


async def test_another_replica_follows_without_a_restart(service: Service, entry: Entry) -> None:
    other = ReportTokens(await ReportKeys.open(service.store))
    old = await live(service)
    await rotate(entry)
    new = await live(service)
    token = service.tokens.issue(new.id, 1)
    assert await other.read(token) == (new.id, 1), "it looks for a key that it does not know"
    assert other.group(old.id, 1) == service.tokens.group(old.id, 1)
    assert other.group(new.id, 1) == service.tokens.group(new.id, 1)
