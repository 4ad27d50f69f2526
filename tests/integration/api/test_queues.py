"""Queues over the wire: declared, named by jobs, refused and removed."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from typer.testing import CliRunner

from tests.support.api_service import Serve, Service, metadata
from training_service._generated import training_service_pb2 as pb
from training_service.client import AsyncTrainingClient, InvalidRequest, NotFound, ResourceExhausted
from training_service.client.cli.app import app
from training_service.client.cli.render import queues
from training_service.client.errors import FailedPrecondition

FILE = """
[scheduling.queues.vision]
parent = "teams"
weight = 3
max_priority = "normal"
quotas.default = {nominal = {instances = 2}, borrow = {instances = 1}}

[scheduling.queues.teams]
"""


@pytest.fixture
async def service(serve: Serve) -> Service:
    return await serve(projects={"vision": {}}, tracked=False)


def client_of(service: Service, project: str = "") -> AsyncTrainingClient:
    return AsyncTrainingClient(service.address, project=project)


async def test_an_old_request_waits_in_the_default_queue(service: Service) -> None:
    answer = await service.stub.Train(pb.TrainRequest(metadata=metadata()))
    status = await service.status(answer.job_id)
    assert (status.queue, status.priority, status.HasField("expected")) == ("default", 0, False)


async def test_a_job_names_its_queue_its_priority_and_how_long_it_runs(service: Service) -> None:
    async with client_of(service) as client:
        await client.catalog.set_queue("research", {"projects": ["default"], "weight": 2})
        job = await client.submit("program", "1", "v1", priority="high", expected=timedelta(minutes=90))
        status = await service.status(job)
        assert (status.queue, status.priority) == ("research", 100)
        assert status.expected == Duration(seconds=5400)
        again = await service.status(await client.rerun(job))
        assert (again.queue, again.priority, again.expected) == ("research", 100, status.expected)
        spec = (await service.store.get(job)).spec
        assert (spec.queue, spec.priority, spec.expected) == ("research", 100, timedelta(minutes=90))


async def test_a_request_that_a_queue_does_not_take_changes_nothing(service: Service) -> None:
    async with client_of(service) as client:
        await client.catalog.set_queue("top", {"projects": ["vision"]})
        await client.catalog.set_queue(
            "small",
            {
                "max_priority": "low",
                "max_queued": 1,
                "quotas": {"default": {"nominal": {"instances": 1}, "borrow": {"instances": 0}}},
            },
        )
        with pytest.raises(
            NotFound, match="queue: 'top' doesn't exist; project default may use: default, small"
        ):
            await client.submit("program", "1", "v1", queue="top")
        with pytest.raises(InvalidRequest, match="priority: 'high' is not allowed in queue small"):
            await client.submit("program", "1", "v1", queue="small", priority="high")
        with pytest.raises(InvalidRequest, match="expected: "):
            await client.submit("program", "1", "v1", expected=timedelta(0))
        with pytest.raises(InvalidRequest, match=r"The largest that fits .* queue small is 1 trainer,"):
            await client.submit("program", "1", "v1", queue="small", instances=2)
        assert [job async for job in client.list()] == []
        await client.submit("program", "1", "v1", queue="small")
        with pytest.raises(ResourceExhausted, match=r"1 job of queue small is queued, which is the limit"):
            await client.submit("program", "1", "v1", queue="small")


async def test_a_queue_with_jobs_is_not_removed(service: Service) -> None:
    async with client_of(service) as client:
        await client.catalog.set_queue("own", {})
        job = await client.submit("program", "1", "v1", queue="own")
        with pytest.raises(FailedPrecondition, match="queue own cannot be removed while jobs wait"):
            await client.catalog.remove_queue("own")
        await client.cancel(job)
        await client.catalog.remove_queue("own")
        assert [each.name async for each in client.catalog.queues()] == ["default"]


async def test_the_command_line_declares_lists_and_removes_queues(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "queues.toml"
    file.write_text(FILE)

    async def trainctl(*words: str) -> tuple[int, str]:
        result = await asyncio.to_thread(CliRunner().invoke, app, ["--address", service.address, *words])
        return result.exit_code, result.output

    code, output = await trainctl("queues", "set", str(file))
    assert (code, output.splitlines()) == (
        0,
        [
            "teams\tapi\t1\t-\t1\tyes\t-\t-",
            "vision\tapi\t2\tteams\t3\tyes\tpriority=normal\tdefault/instances=2,borrow=1",
        ],
    )
    code, output = await trainctl("queues")
    assert [line.split("\t")[0] for line in output.splitlines()] == ["default", "teams", "vision"]
    code, output = await trainctl("--json", "queues")
    assert json.loads(output.splitlines()[2])["quotas"][0]["borrow"] == "1"
    code, output = await trainctl("queues", "rm", "teams")
    assert code != 0
    assert "queue teams cannot be removed: vision.parent: 'teams' doesn't exist" in output
    words = (
        "--dataset",
        "1",
        "--version",
        "v1",
        "--queue",
        "vision",
        "--priority",
        "low",
        "--expected",
        "2h",
    )
    code, output = await trainctl("submit", "program", *words)
    assert code == 0, output
    status = await service.status(int(output.splitlines()[0]))
    assert (status.queue, status.priority, status.expected.seconds) == ("vision", -100, 7200)
    file.write_text("[scheduling]\ncapacity = 3\n")
    code, output = await trainctl("queues", "set", str(file))
    assert code != 0
    assert "capacity: not allowed; allowed: tables scheduling.queues.NAME" in output


async def test_the_rules_of_preemption_are_declared_listed_and_refused_by_field(service: Service) -> None:
    async with client_of(service) as client:
        rules = {"by_priority": True, "min_runtime": "PT10M", "max_preemptions": 0, "protected": "high"}
        await client.catalog.set_queue("research", {"preemption": rules})
        [listed] = [each async for each in client.catalog.queues(name="research")]
        found = listed.preemption
        assert (found.by_priority, found.HasField("reclaim"), found.min_runtime) == (
            True,
            False,
            Duration(seconds=600),
        )
        assert (found.HasField("max_preemptions"), found.protected) == (True, "high")
        limits = "preempts-by-priority=yes min-runtime=600s preemptions=0 protected=high"
        assert limits in queues.queue(listed).split("\t")
        with pytest.raises(InvalidRequest, match=r"definition\.preemption\.max_preemptions: .*1000"):
            await client.catalog.set_queue("research", {"preemption": {"max_preemptions": 1001}})
        with pytest.raises(
            InvalidRequest, match=r"preemption\.protected: 'urgent' doesn't exist; allowed: high"
        ):
            await client.catalog.set_queue("research", {"preemption": {"protected": "urgent"}})
