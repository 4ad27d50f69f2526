"""Old clients of the MiniAutoML training service still work. Their stubs are built from the table below."""

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import Message

from job_tracker.common.clock import utc_now
from job_tracker.domain.job import Ending, Job, JobState
from tests.support.api_service import Serve, Service
from training_service.client import AsyncTrainingClient, TrainingClient

# The fixed contract. It does not use proto/.
TABLE = """
| TrainRequest | metadata | 1 | TrainingJobMetadata |
| TrainResponse | job_id | 1 | int32 |
| GetTrainingStatusRequest | job_id | 1 | int32 |
| GetTrainingStatusResponse | status | 1 | TrainingStatus |
| | job_id | 2 | int32 |
| | message | 3 | string |
| | metadata | 4 | TrainingJobMetadata |
| | positionInQueue | 5 | int32 |
| TrainingJobMetadata | algorithm | 1 | string |
| | dataset_id | 2 | string |
| | name | 3 | string |
| | train_data_version_hash | 4 | string |
| | parameters | 5 | map<string, string> |
| | output_model_name | 6 | string |
"""
STATUSES = {"queuing": 0, "launch": 1, "running": 2, "succeed": 3, "failure": 4}
CANCELLED = 5  # a new status, unknown to old clients

Field = descriptor_pb2.FieldDescriptorProto


class OldClient:
    """A client with the two old calls, and messages with the old fields only."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        classes = message_classes()
        self.metadata = classes["TrainingJobMetadata"]
        self._train_request = classes["TrainRequest"]
        self._status_request = classes["GetTrainingStatusRequest"]
        self._train = unary(channel, "Train", classes["TrainResponse"])
        self._status = unary(channel, "GetTrainingStatus", classes["GetTrainingStatusResponse"])

    async def train(self, **metadata: Any) -> Any:
        """Submit a job."""
        return await self._train(self._train_request(metadata=self.metadata(**metadata)))

    async def status(self, job_id: int) -> Any:
        """Get the status of a job."""
        return await self._status(self._status_request(job_id=job_id))


def unary(channel: Any, method: str, response: type[Message]) -> Callable[[Message], Any]:
    """A call of the service with the messages of the table."""
    call: Callable[[Message], Any] = channel.unary_unary(
        f"/training.TrainingService/{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=response.FromString,
    )
    return call


def message_classes() -> Mapping[str, Any]:
    """The messages of the table."""
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="training", syntax="proto3")
    enum = file.enum_type.add(name="TrainingStatus")
    for status, value in STATUSES.items():
        enum.value.add(name=status, number=value)
    for row in TABLE.strip().splitlines():
        message, field, number, kind = (cell.strip() for cell in row.strip("|").split("|"))
        if message:
            current = file.message_type.add(name=message)
        add_field(current, field, int(number), kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"training.{message.name}"))
        for message in file.message_type
    }


def add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
    """Add the field of a row of the table."""
    scalars = {"int32": Field.TYPE_INT32, "string": Field.TYPE_STRING}
    field = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL, json_name=name)
    if kind in scalars:
        field.type = scalars[kind]
    elif kind == "TrainingStatus":
        field.type = Field.TYPE_ENUM
        field.type_name = ".training.TrainingStatus"
    elif kind.startswith("map<"):
        entry = message.nested_type.add(name="ParametersEntry")
        entry.options.map_entry = True
        add_field(entry, "key", 1, "string")
        add_field(entry, "value", 2, "string")
        field.label, field.type = Field.LABEL_REPEATED, Field.TYPE_MESSAGE
        field.type_name = f".training.{message.name}.ParametersEntry"
    else:
        field.type, field.type_name = Field.TYPE_MESSAGE, f".training.{kind}"


REQUEST: Mapping[str, Any] = {
    "algorithm": "program",
    "dataset_id": "1",
    "name": "test1",
    "train_data_version_hash": "v1",
    "parameters": {"LR": "4", "EPOCHS": "15", "PARALLEL_INSTANCES": "3"},
}


async def test_the_first_job_has_id_1_and_position_0(untracked: Service) -> None:
    client = OldClient(untracked.channel)
    assert (await client.train(**REQUEST)).job_id == 1
    status = await client.status(1)
    assert (status.status, status.job_id, status.positionInQueue) == (STATUSES["queuing"], 1, 0)
    assert status.message == "Queueing, there are 0 training jobs waiting before this."
    assert status.metadata == client.metadata(**REQUEST, output_model_name="test1")


async def test_an_old_client_gets_the_position_in_the_queue(untracked: Service) -> None:
    client = OldClient(untracked.channel)
    for _ in range(3):
        job_id = (await client.train(**REQUEST)).job_id
    status = await client.status(job_id)
    assert (status.job_id, status.positionInQueue) == (3, 2)
    assert status.message == "Queueing, there are 2 training jobs waiting before this."


async def test_an_old_client_sees_its_job_succeed(service: Service) -> None:
    client = OldClient(service.channel)
    job_id = (await client.train(**REQUEST, output_model_name="intent")).job_id
    await service.seen(job_id, STATUSES["succeed"])  # type: ignore[arg-type]
    status = await client.status(job_id)
    assert status.status == STATUSES["succeed"]
    assert status.metadata.output_model_name == "intent"
    assert status.message.startswith("Training succeeded")


async def test_an_old_client_reads_every_state(untracked: Service) -> None:
    client = OldClient(untracked.channel)
    for end in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED):
        job = await untracked.store.get((await client.train(**REQUEST)).job_id)
        seen = [(await client.status(job.id)).status]
        for step in (admitted, running, partial(ended, state=end)):
            job = await untracked.store.update(step(job))
            seen.append((await client.status(job.id)).status)
        last = {
            JobState.SUCCEEDED: STATUSES["succeed"],
            JobState.FAILED: STATUSES["failure"],
            JobState.CANCELLED: CANCELLED,
        }[end]
        assert seen == [STATUSES["queuing"], STATUSES["launch"], STATUSES["running"], last]


async def test_an_old_client_survives_a_cancelled_job(untracked: Service) -> None:
    client = OldClient(untracked.channel)
    job = await untracked.store.get((await client.train(**REQUEST)).job_id)
    await untracked.store.update(ended(job, JobState.CANCELLED))
    status = await client.status(job.id)
    assert status.status == CANCELLED
    assert status.status not in STATUSES.values()
    assert status.message == "Cancelled on request."
    as_json = json_format.MessageToDict(status, preserving_proto_field_name=True)
    assert (as_json["status"], as_json["job_id"]) == (CANCELLED, job.id)
    assert type(status).FromString(status.SerializeToString()) == status


async def test_a_setting_reports_cancelled_jobs_as_failures_to_old_clients(
    serve: Serve,
) -> None:
    untracked = await serve(tracked=False, server={"cancelled_as_failure": True})
    client = OldClient(untracked.channel)
    job = await untracked.store.get((await client.train(**REQUEST)).job_id)
    await untracked.store.update(ended(job, JobState.CANCELLED))
    status = await client.status(job.id)
    assert (status.status, status.message) == (STATUSES["failure"], "Cancelled on request.")
    async with AsyncTrainingClient(untracked.address) as new:
        known = await new.status(job.id)
        assert (known.status, known.moves[-1].status) == (CANCELLED, CANCELLED)
        assert [each.status async for each in new.list()] == [CANCELLED]
    with TrainingClient(untracked.address) as blocking:
        assert (await asyncio.to_thread(blocking.status, job.id)).status == CANCELLED


async def test_an_unknown_job_gives_the_old_message(untracked: Service) -> None:
    client = OldClient(untracked.channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.status(51)
    assert (caught.value.code(), caught.value.details()) == (
        grpc.StatusCode.NOT_FOUND,
        "Job 51 doesn't exist",
    )


async def test_an_old_client_gets_the_name_of_an_empty_field(untracked: Service) -> None:
    client = OldClient(untracked.channel)
    for field in ("algorithm", "dataset_id", "train_data_version_hash"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.train(**{**REQUEST, field: ""})
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert re.search(rf"\b{field}\b", caught.value.details() or "")


async def test_json_of_a_notebook_is_a_valid_request(untracked: Service) -> None:
    # grpcurl and json_format do not accept numbers for string fields, so parameters are strings.
    client = OldClient(untracked.channel)
    text = (
        '{"metadata": {"algorithm": "program", "dataset_id": "1", "name": "test1",'
        ' "train_data_version_hash": "v1", "parameters": {"LR": "4", "EPOCHS": "15"}}}'
    )
    request = json_format.Parse(text, client._train_request())
    assert (await client._train(request)).job_id == 1
    assert (await client.status(1)).metadata.parameters == {"LR": "4", "EPOCHS": "15"}


async def test_parameters_may_be_left_out(untracked: Service) -> None:
    client = OldClient(untracked.channel)
    assert (await client.train(**{**REQUEST, "parameters": {}})).job_id == 1
    assert (await client.status(1)).metadata.parameters == {}


async def test_unknown_fields_are_ignored(untracked: Service) -> None:
    client = OldClient(untracked.channel)
    request = client._train_request(metadata=client.metadata(**REQUEST)).SerializeToString()
    await untracked.call_raw("Train", request + b"\xfa\x3f\x03abc")  # field 1023
    assert (await client.status(1)).status == STATUSES["queuing"]


def admitted(job: Job) -> Job:
    """Return the job as it is launched."""
    return job.admitted(utc_now())


def running(job: Job) -> Job:
    """Return the job as it starts to run."""
    return job.running(utc_now())


def ended(job: Job, state: JobState) -> Job:
    """Return the job after it has ended in this state."""
    return job.ended(Ending(state, utc_now()), utc_now())
