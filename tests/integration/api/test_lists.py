"""Lists of jobs and large statuses take a bounded amount of memory until their clients have read them."""

import asyncio
from typing import Any

import pytest

from job_tracker.domain.job import Job
from job_tracker.store.jobs import LARGEST_LIST, JobFilter, Listing
from job_tracker.store.sqlite import SqliteStore
from tests.support.api_service import Serve, Service
from tests.support.http2 import unread_calls
from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb
from training_service.api import servicer

LIST = "/training.TrainingService/ListTrainingJobs"
STATUS = "/training.TrainingService/GetTrainingStatus"


class CountingStore(SqliteStore):
    """A store that counts reads of lists and of jobs."""

    lists = 0

    reads = 0

    async def get(self, job_id: int) -> Job:
        self.reads += 1
        return await super().get(job_id)

    async def list_jobs(self, where: JobFilter, **options: Any) -> Listing:
        if where.projects is not None:  # a caller's list: the service itself lists jobs of all projects
            self.lists += 1
        return await super().list_jobs(where, **options)


async def large_jobs(service: Service, count: int) -> list[int]:
    return [await service.train({f"P{n}": "x" * 4_000 for n in range(15)}) for _ in range(count)]


async def test_a_page_of_large_jobs_is_shorter(untracked: Service) -> None:
    ids = await large_jobs(untracked, 40)
    found: list[int] = []
    request = pb.ListTrainingJobsRequest(page_size=1000)
    while True:
        page = await untracked.stub.ListTrainingJobs(request)
        assert page.ByteSize() < LARGEST_LIST
        found += [job.job_id for job in page.jobs]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert found == ids[::-1]


async def test_the_number_of_unread_lists_is_bounded(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servicer, "_SEND_SECONDS", PATIENCE)
    service = await serve(CountingStore, tracked=False)
    await large_jobs(service, 2)
    assert isinstance(service.store, CountingStore)
    with unread_calls(service.address, 40, LIST, b""):
        while service.store.lists < servicer._LISTS_OF_ONE:
            await asyncio.sleep(0.01)
        for _ in range(20):  # these calls are answered after the server has accepted all others
            await service.status(1)
        assert service.store.lists == servicer._LISTS_OF_ONE


async def test_unread_lists_of_one_address_do_not_delay_another(serve: Serve) -> None:
    service = await serve(CountingStore, tracked=False)
    ids = await large_jobs(service, 2)
    assert isinstance(service.store, CountingStore)
    with unread_calls(service.address, 200, LIST, b"", source="127.0.0.2"):
        while service.store.lists < servicer._LISTS_OF_ONE:
            await asyncio.sleep(0.01)
        page = await service.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(), timeout=PATIENCE)
        assert [job.job_id for job in page.jobs] == ids[::-1]


async def test_unread_lists_delay_others_only_for_a_while(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for a client that reads at once, on a machine that is busy with other tests, too.
    monkeypatch.setattr(servicer, "_SEND_SECONDS", 1.0)
    service = await serve(tracked=False)
    ids = await large_jobs(service, 2)
    ended, turns = service.metrics.ended, service.servicer._lists._turns
    before = ended.qsize()
    with unread_calls(service.address, 40, LIST, b""):
        # Our call is the last in line. Otherwise, it could itself be ended while others wait.
        while ended.qsize() - before + turns.wanted().total() < 40:
            await asyncio.sleep(0.01)
        page = await service.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(), timeout=PATIENCE)
        assert [job.job_id for job in page.jobs] == ids[::-1]


async def test_the_number_of_unread_large_statuses_is_bounded(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servicer, "_SEND_SECONDS", PATIENCE)
    service = await serve(CountingStore, tracked=False)
    [large] = await large_jobs(service, 1)
    small = await service.train()
    assert isinstance(service.store, CountingStore)
    asked = 200
    request = pb.GetTrainingStatusRequest(job_id=large).SerializeToString()
    with unread_calls(service.address, asked, STATUS, request, source="127.0.0.2"):
        # Each status is built twice: once for its size, and again to be sent.
        while service.store.reads < asked + servicer._OF_ONE:
            await asyncio.sleep(0.01)
        before = service.store.reads
        assert (await service.status(small)).job_id == small
        assert (await service.status(large)).job_id == large
        assert service.store.reads == before + 3
