"""The queue over the wire, as callers may see it, and simulated by trainctl."""

import asyncio
import json
from datetime import timedelta

import grpc
import pytest
from typer.testing import CliRunner

from job_tracker.domain.caller import Role
from tests.support.access import Entry, Sent, failure
from tests.support.api_service import CAPACITY, Serve, Service, metadata
from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb
from training_service.client import AsyncTrainingClient
from training_service.client.cli.app import app

LARGE = {"RUN_SECONDS": "forever", "PARALLEL_INSTANCES": str(CAPACITY)}


async def snapshot(service: Service, sent: Sent) -> pb.GetQueueSnapshotResponse:
    return await service.stub.GetQueueSnapshot(pb.GetQueueSnapshotRequest(), metadata=sent)


async def seen_with(service: Service, jobs: int) -> pb.GetQueueSnapshotResponse:
    """Return the queue with this number of jobs, of which the first runs. It may be a second old."""
    async with AsyncTrainingClient(service.address) as client, asyncio.timeout(PATIENCE):
        while True:
            found = await client.queue_snapshot()
            if len(found.jobs) == jobs and found.jobs[0].HasField("admitted_at"):
                return found
            await asyncio.sleep(0.05)


@pytest.fixture
async def service(serve: Serve) -> Service:
    return await serve()


async def trainctl(service: Service, *words: str) -> tuple[int, str, str]:
    result = await asyncio.to_thread(CliRunner().invoke, app, ["--address", service.address, *words])
    return result.exit_code, result.stdout, " ".join(result.stderr.replace("│", " ").split())


async def test_it_has_what_runs_and_what_waits(service: Service) -> None:
    running = await service.train(LARGE)
    await service.seen(running, pb.running)
    async with AsyncTrainingClient(service.address) as client:
        waiting = await client.submit("program", "1", "v1", priority="high", expected=timedelta(hours=2))
    found = await seen_with(service, 2)
    assert [(each.name, dict(each.capacity)) for each in found.flavors] == [
        ("default", {"instances": CAPACITY})
    ]
    assert [each.name for each in found.queues] == ["default"]
    first, second = found.jobs
    assert (first.job_id, second.job_id) == (running, waiting)
    assert (first.HasField("admitted_at"), first.flavor) == (True, "default")
    assert not first.HasField("expected_seconds")
    assert (second.HasField("admitted_at"), second.priority, second.expected_seconds) == (False, 100, 7200)
    assert [found.shapes[each.shape].parts[0].count for each in found.jobs] == [CAPACITY, 1]
    assert (found.reservations, found.overtake_limit, found.omitted_jobs) == (100, 8, 0)


async def test_what_a_caller_may_not_see_has_no_names(serve: Serve) -> None:
    service = await serve(
        tracked=False,
        projects={"vision": {}, "speech": {}},
        scheduling={"capacity": CAPACITY, "queues": {"secret": {"projects": ["speech"], "weight": 3}}},
    )
    entry = Entry(service)
    ids = {}
    for project in ("vision", "speech"):
        sent = [*entry.operator, ("x-project", project)]
        ids[project] = (await service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)).job_id
    viewer = await entry.caller(Role.VIEWER, "vision")
    found = await snapshot(service, viewer)
    assert {(each.name, each.weight) for each in found.queues} == {("default", 1), ("#1", 3)}
    assert [(each.job_id, each.project, each.queue) for each in found.jobs] == [
        (ids["vision"], "vision", "default"),
        (0, "", "#1"),
    ]
    assert "secret" not in str(found)
    assert "speech" not in str(found)
    every = await snapshot(service, entry.operator)
    assert [each.job_id for each in every.jobs] == list(ids.values())
    nothing = service.stub.GetQueueSnapshot(pb.GetQueueSnapshotRequest(project="speech"), metadata=viewer)
    assert (await failure(nothing))[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_trainctl_simulates_the_queue_of_the_service(service: Service) -> None:
    running = await service.train(LARGE)
    await service.seen(running, pb.running)
    for _ in range(3):
        await service.train({"PARALLEL_INSTANCES": str(CAPACITY)})
    await seen_with(service, 4)
    before = await service.written()
    options = ("--add", f"default={CAPACITY}", "--assume", "30m", "--json")
    code, printed, notes = await trainctl(service, "simulate", *options)
    assert code == 0, notes
    assert "3 jobs waiting, and 1 running; 4 of unknown length are assumed to run for 30 min" in notes
    base, more = map(json.loads, printed.splitlines())
    assert base["end_s"] == pytest.approx(4 * 1800, abs=60)
    assert more["end_s"] == pytest.approx(2 * 1800, abs=60)
    assert more["waiting_s"]["jobs"] == 3
    code, printed, notes = await trainctl(
        service, "simulate", "--capacity", str(2 * CAPACITY), "--load", "0.5", "--coming", "10h", "--json"
    )
    assert code == 0, notes
    assert json.loads(printed.splitlines()[1])["waiting_s"]["jobs"] > 3
    assert await service.written() == before


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--add", "default=-9"), "add default=-9 leaves -1 instances"),
        (("--quota", "nope=1"), "no job is in queue 'nope'; queues: default"),
        (("--quota", "default=cpu=1"), "flavor default has no resource cpu; allowed: instances"),
        (("--quota", "default=a100/instances=1"), "there is no flavor a100; flavors: default"),
        (("--quota", "default=cpu=much"), "default: 'much' is not a quantity"),
        (("--since", "5"), "needs a trace: give FILE"),
        (("--load", "100", "--coming", "1d", "--assume", "0.01s"), "choose a lower load or a shorter time"),
        (("--assume", "soon"), "'soon' is not a duration"),
    ],
)
async def test_a_wrong_what_if_is_named(service: Service, words: tuple[str, ...], problem: str) -> None:
    await service.train(LARGE)
    code, _, notes = await trainctl(service, "simulate", *words)
    assert code == 2
    assert problem in notes


async def test_an_empty_queue_is_an_error(service: Service) -> None:
    code, _, notes = await trainctl(service, "simulate")
    assert code == 2
    assert "no job waits or runs in the service; give a trace" in notes
