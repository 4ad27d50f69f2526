"""Why jobs wait, over the wire."""

import asyncio

import grpc

from tests.support.api_service import CAPACITY, Service
from training_service._generated import training_service_pb2 as pb


async def explained(service: Service, job_id: int) -> pb.ExplainTrainingResponse:
    return await service.stub.ExplainTraining(pb.ExplainTrainingRequest(job_id=job_id))


async def test_a_waiting_job_is_explained(service: Service) -> None:
    large = {"RUN_SECONDS": "forever", "PARALLEL_INSTANCES": str(CAPACITY)}
    running = await service.train(large)
    await service.seen(running, pb.running)
    assert list((await explained(service, running)).reasons) == []
    first = await service.train(large)
    second = await service.train(large)
    async with asyncio.timeout(10):
        while (found := await explained(service, first)).reasons[0].code != "capacity":
            await asyncio.sleep(0.05)  # the leader writes its reasons once a second
    assert found.reasons[0].message == "Other jobs use what it needs."
    assert (found.queue, found.position) == ("default", 0)
    assert not found.HasField("promised_start"), "the running job may run for ever"
    assert [(each.job_id, each.instances) for each in found.holders] == [(running, CAPACITY)]
    assert found.holders[0].HasField("admitted_at")
    assert found.other_holders == 0

    behind = await explained(service, second)
    assert behind.position == 1
    assert behind.reasons[0].code == "order"


async def test_an_unknown_job_is_not_explained(service: Service) -> None:
    await service.refuses(
        service.stub.ExplainTraining(pb.ExplainTrainingRequest(job_id=99)), grpc.StatusCode.NOT_FOUND
    )
