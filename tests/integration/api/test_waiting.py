"""Reasons why jobs wait, and the queue, over the wire."""

import asyncio

import grpc

from tests.support.api_service import CAPACITY, Service
from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb

LARGE = {"RUN_SECONDS": "forever", "PARALLEL_INSTANCES": str(CAPACITY)}


async def explained(service: Service, job_id: int) -> pb.ExplainTrainingResponse:
    return await service.stub.ExplainTraining(pb.ExplainTrainingRequest(job_id=job_id))


async def waits_for(service: Service, job_id: int, reason: str) -> pb.ExplainTrainingResponse:
    async with asyncio.timeout(PATIENCE):
        while not (found := await explained(service, job_id)).reasons or found.reasons[0].code != reason:
            await asyncio.sleep(0.05)  # the leader writes its reasons once a second
    return found


async def test_a_waiting_job_is_explained(service: Service) -> None:
    running = await service.train(LARGE)
    await service.seen(running, pb.running)
    assert list((await explained(service, running)).reasons) == []
    first = await service.train(LARGE)
    second = await service.train(LARGE)
    found = await waits_for(service, first, "capacity")
    assert found.reasons[0].message == "Other jobs use what it needs."
    assert (found.queue, found.position) == ("default", 0)
    assert not found.HasField("promised_start"), "the running job may run for ever"
    assert [(each.job_id, each.instances) for each in found.holders] == [(running, CAPACITY)]
    assert found.holders[0].HasField("admitted_at")
    assert found.other_holders == 0
    assert found.estimate.basis == "assumed"
    assert not found.HasField("expected_run")
    assert [(each.code, each.is_verified) for each in found.remedies] == [("capacity", True)]
    assert found.remedies[0].message == f"Raise the capacity of the flavor default by {CAPACITY} instances."

    behind = await waits_for(service, second, "order")
    assert behind.position == 1
    assert behind.estimate.median.ToDatetime() > found.estimate.median.ToDatetime()


async def test_the_message_of_a_waiting_job_has_the_reason_and_the_expected_start(service: Service) -> None:
    await service.train(LARGE)
    job_id = await service.train(LARGE)
    await waits_for(service, job_id, "capacity")
    async with asyncio.timeout(PATIENCE):
        while "Other jobs use" not in (message := (await service.status(job_id)).message):
            await asyncio.sleep(0.1)  # what statuses show is a few seconds old
    assert message.startswith(
        "Queueing, there are 0 training jobs waiting before this. Other jobs use what it needs. "
        "It may start at about 20"
    )
    assert "in nine of ten cases before" in message
    assert message.endswith("Some run times are assumed.")


async def test_the_queue_shows_waiting_jobs_and_what_queues_use(service: Service) -> None:
    running = await service.train(LARGE)
    await service.seen(running, pb.running)
    waiting = [await service.train(LARGE, name=f"job-{number}") for number in range(3)]
    await waits_for(service, waiting[2], "order")
    async with asyncio.timeout(PATIENCE):
        page = await service.stub.GetQueue(pb.GetQueueRequest(page_size=2))
        while not page.queues[0].running or page.queues[0].waiting < 3:  # it was read a moment ago
            page = await service.stub.GetQueue(pb.GetQueueRequest(page_size=2))
    assert [(job.job_id, job.place, job.name, job.instances) for job in page.jobs] == [
        (waiting[0], 1, "job-0", CAPACITY),
        (waiting[1], 2, "job-1", CAPACITY),
    ]
    assert page.jobs[0].reason.code == "capacity"
    assert page.jobs[0].HasField("estimate")
    queue = page.queues[0]
    assert (queue.name, queue.waiting, queue.running, queue.instances) == ("default", 3, 1, CAPACITY)
    assert [(used.resource, used.used, used.capacity) for used in queue.used] == [
        ("instances", str(CAPACITY), str(CAPACITY))
    ]
    rest = await service.stub.GetQueue(pb.GetQueueRequest(page_size=2, page_token=page.next_page_token))
    assert [job.job_id for job in rest.jobs] == waiting[2:]
    assert (rest.next_page_token, list(rest.queues)) == ("", [])
    only = await service.stub.GetQueue(pb.GetQueueRequest(queue="default"))
    assert [job.job_id for job in only.jobs] == waiting
    details = await service.refuses(
        service.stub.GetQueue(pb.GetQueueRequest(queue="other")), grpc.StatusCode.NOT_FOUND
    )
    assert "queue: 'other' doesn't exist; allowed: default" in details


async def test_bad_pages_of_the_queue_are_refused(service: Service) -> None:
    for request, field in (
        (pb.GetQueueRequest(page_size=-1), "page_size"),
        (pb.GetQueueRequest(page_token="x"), "page_token"),
        (pb.GetQueueRequest(project="No Project"), "project"),
    ):
        details = await service.refuses(service.stub.GetQueue(request), grpc.StatusCode.INVALID_ARGUMENT)
        assert details.startswith(field)


async def test_an_unknown_job_is_not_explained(service: Service) -> None:
    await service.refuses(
        service.stub.ExplainTraining(pb.ExplainTrainingRequest(job_id=99)), grpc.StatusCode.NOT_FOUND
    )
