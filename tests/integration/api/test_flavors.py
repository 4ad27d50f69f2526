"""Jobs that ask for a flavor, over the wire."""

import asyncio
import re

import grpc
import pytest
from typer.testing import CliRunner

from tests.support.api_service import Serve, Service, metadata
from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb
from training_service.client import AsyncTrainingClient
from training_service.client.cli.app import app

LONG = {"RUN_SECONDS": "forever"}
FLAVORS = {"small": {"instances": "2"}, "large": {"instances": "4"}}


@pytest.fixture
async def service(serve: Serve) -> Service:
    return await serve(scheduling={"flavors": FLAVORS})


def asking(flavor: str, instances: int = 1) -> pb.TrainRequest:
    parameters = {**LONG, "PARALLEL_INSTANCES": str(instances)}
    return pb.TrainRequest(metadata=metadata(parameters), flavor=flavor)


async def flavor_of(service: Service, job_id: int) -> str:
    """Return the flavor on which a job runs."""
    await service.seen(job_id, pb.running)
    allocation = (await service.store.get(job_id)).allocation
    assert allocation is not None
    return allocation.flavor


async def test_a_job_runs_on_the_flavor_that_it_asks_for(service: Service) -> None:
    first = (await service.stub.Train(asking(""))).job_id
    asked = (await service.stub.Train(asking("large"))).job_id
    assert (await flavor_of(service, first), await flavor_of(service, asked)) == ("small", "large")
    assert ((await service.status(first)).flavor, (await service.status(asked)).flavor) == ("", "large")
    async with AsyncTrainingClient(service.address) as client:
        again = await client.rerun(asked)
        assert (await service.status(again)).flavor == "large"


async def test_a_flavor_that_is_not_there_is_refused(service: Service) -> None:
    details = await service.refuses(service.stub.Train(asking("huge\n")), grpc.StatusCode.NOT_FOUND)
    assert details == r"flavor: 'huge\n' doesn't exist; allowed: large, small"


async def test_a_job_that_is_too_large_for_its_flavor_learns_what_fits(service: Service) -> None:
    details = await service.refuses(service.stub.Train(asking("small", 3)), grpc.StatusCode.INVALID_ARGUMENT)
    assert details == (
        "parameters.PARALLEL_INSTANCES: The job needs 3 instances for 3 trainers. The largest that fits in "
        "the capacity and the quota of the queue default is 2 trainers, on the flavor small. Submit it with "
        "at most 2 trainers, for the flavor large, or raise the capacity or the quota."
    )


async def test_a_job_that_waits_for_its_flavor_starts_with_the_remedy_that_is_proposed(
    service: Service,
) -> None:
    async with AsyncTrainingClient(service.address) as client:
        running = (await service.stub.Train(asking("small", 2))).job_id
        assert await flavor_of(service, running) == "small"
        job = await client.submit("program", "1", "v1", parameters=LONG, flavor="small")
        async with asyncio.timeout(PATIENCE):
            while not (found := await client.why(job)).reasons or found.reasons[0].code != "capacity":
                await asyncio.sleep(0.05)  # the leader writes its reasons once a second
        assert found.wanted_flavor == "small"
        [remedy] = found.remedies
        assert (remedy.code, remedy.is_verified) == ("flavor", True)
        assert remedy.message == "Submit it for the flavor large (--flavor large)."
        words = ["--address", service.address]
        why = await asyncio.to_thread(CliRunner().invoke, app, [*words, "why", str(job)])
        assert "flavor: small, as it asks" in why.output
        await client.cancel(job)
        [option] = re.findall(r"\((.*)\)", remedy.message)
        submit = ["submit", "program", "--dataset", "1", "--version", "v1", "-p", "RUN_SECONDS=forever"]
        done = await asyncio.to_thread(CliRunner().invoke, app, [*words, *submit, *option.split()])
        assert done.exit_code == 0, done.output
        assert await flavor_of(service, int(done.output.splitlines()[0])) == "large"


async def test_the_queue_says_which_flavor_a_job_asks_for(service: Service) -> None:
    job = (await service.stub.Train(asking("large"))).job_id
    await service.seen(job, pb.running)
    async with AsyncTrainingClient(service.address) as client:
        async with asyncio.timeout(PATIENCE):
            while not (jobs := (await client.queue_snapshot()).jobs):
                await asyncio.sleep(0.02)  # a replica's view of the queue follows the store
    [seen] = jobs
    assert seen.wanted_flavor == "large"
