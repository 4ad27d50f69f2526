"""Common behaviour of all calls: errors without internals, request ids, logs, metrics."""

import asyncio
import io
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from job_tracker.domain.errors import (
    BackendUnavailable,
    IllegalMove,
    LogsNotFound,
    StaleJob,
    StoreUnavailable,
)
from job_tracker.domain.job import Job
from job_tracker.store.sqlite import SqliteStore
from tests.support.api_service import Serve, Service, metadata
from tests.support.patience import PATIENCE
from training_service import log_setup as logs
from training_service._generated import training_reporter_pb2 as reporter_pb
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_reporter_pb2_grpc import TrainingReporterStub
from training_service.settings import LoggingSettings

SERVICE = "training.TrainingService"
SECRET = "postgres://admin:hunter2@10.0.0.7/jobs"


def failing_with(error: Exception) -> type[SqliteStore]:
    """A real store that fails when a job is read."""

    class FailingStore(SqliteStore):
        async def get(self, job_id: int) -> Job:
            raise error

    return FailingStore


async def test_an_unexpected_error_is_logged_and_hidden_from_the_client(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    service = await serve(failing_with(RuntimeError(SECRET)), tracked=False)
    request = pb.GetTrainingStatusRequest(job_id=1)
    details = await service.refuses(
        service.stub.GetTrainingStatus(request, metadata=(("x-request-id", "order-66"),)),
        grpc.StatusCode.INTERNAL,
    )
    assert details == "internal error; the service's log has the reason under request id order-66"
    (record,) = (record for record in caplog.records if record.exc_info)
    assert record.exc_info is not None
    assert SECRET in str(record.exc_info[1])


async def test_an_unexpected_error_of_a_stream_is_hidden_from_the_client(serve: Serve) -> None:
    service = await serve(failing_with(KeyError(SECRET)), tracked=False)
    for method in ("WatchTraining", "GetTrainingLogs"):
        request = pb.WatchTrainingRequest(job_id=1).SerializeToString()
        details = await service.refuses(service.first_raw(method, request), grpc.StatusCode.INTERNAL)
        assert re.fullmatch(
            "internal error; the service's log has the reason under request id [0-9a-f]{32}", details
        )


@pytest.mark.parametrize("error", [StaleJob(1, 2), IllegalMove(1, "queued", "running")])
async def test_an_error_without_a_status_code_is_internal(serve: Serve, error: Exception) -> None:
    service = await serve(failing_with(error), tracked=False)
    details = await service.refuses(service.status(1), grpc.StatusCode.INTERNAL)
    assert str(error) not in details


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreUnavailable("the job store cannot read: disk I/O error"), grpc.StatusCode.UNAVAILABLE),
        (BackendUnavailable("the engine does not answer"), grpc.StatusCode.UNAVAILABLE),
        (LogsNotFound("rank 0 of a-1 has no log"), grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_an_error_for_clients_reaches_them(
    serve: Serve, error: Exception, code: grpc.StatusCode
) -> None:
    service = await serve(failing_with(error), tracked=False)
    assert await service.refuses(service.status(1), code) == str(error)


async def request_id_of(service: Service, given: str | None) -> str:
    """The request id in the trailing metadata of a refused call."""
    call = service.stub.Train(
        pb.TrainRequest(), metadata=None if given is None else (("x-request-id", given),)
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return str(dict(caught.value.trailing_metadata())["x-request-id"])


async def test_a_request_id_is_returned_as_sent(untracked: Service) -> None:
    for given in ("order-66", "a", "x" * 64, "%s {0} \\n"):
        assert await request_id_of(untracked, given) == given


async def test_a_successful_call_returns_its_request_id(untracked: Service) -> None:
    call = untracked.stub.ListTrainingJobs(
        pb.ListTrainingJobsRequest(), metadata=(("x-request-id", "order-66"),)
    )
    await call
    trailing = await call.trailing_metadata()
    assert [value for key, value in trailing or () if key == "x-request-id"] == ["order-66"]


async def test_a_successful_call_without_an_id_returns_one_if_the_log_has_it(untracked: Service) -> None:
    reading = untracked.stub.ListTrainingJobs(pb.ListTrainingJobsRequest())
    await reading
    assert not await reading.trailing_metadata()
    changing = untracked.stub.Train(pb.TrainRequest(metadata=metadata()))
    await changing
    trailing = dict(await changing.trailing_metadata() or ())
    assert re.fullmatch("[0-9a-f]{32}", str(trailing["x-request-id"]))


async def test_a_request_without_an_id_gets_one(untracked: Service) -> None:
    first, second, of_empty = [await request_id_of(untracked, given) for given in (None, None, "")]
    for request_id in (first, second, of_empty):
        assert re.fullmatch("[0-9a-f]{32}", request_id)
    assert len({first, second, of_empty}) == 3


async def test_a_long_request_id_is_shortened(untracked: Service) -> None:
    assert await request_id_of(untracked, "x" * 1000) == "x" * 64


async def test_every_request_is_logged_with_its_own_id(
    untracked: Service, log_lines: Callable[[], list[Any]]
) -> None:
    ids = [f"request-{number}-of-a-client" for number in range(16)]
    await asyncio.gather(
        *(untracked.stub.Train(pb.TrainRequest(), metadata=(("x-request-id", each),)) for each in ids),
        return_exceptions=True,
    )
    lines = [line for line in log_lines() if line["logger"] == "training_service.access"]
    assert sorted(line["request_id"] for line in lines) == sorted(ids)
    for line in lines:
        assert re.fullmatch(
            r"/training.TrainingService/Train INVALID_ARGUMENT \d+\.\d ms by operator: algorithm: must "
            "not be empty",
            line["message"],
        )


async def test_a_request_cannot_forge_a_log_line(
    untracked: Service, log_lines: Callable[[], list[Any]]
) -> None:
    forged = "x\n2026-11-21 ERROR root: the disk is on fire\r\n\x1b[2J\u2028\x85"
    for changes in ({"algorithm": forged}, {"dataset_id": forged}, {"name": forged}):
        with pytest.raises(grpc.aio.AioRpcError):
            await untracked.train(**changes)
    for parameters in ({forged: "1"}, {"NOTE": forged}, {"OPTIMISER": forged}):
        with pytest.raises(grpc.aio.AioRpcError):
            await untracked.train(parameters)
    with pytest.raises(grpc.aio.AioRpcError):
        await untracked.train({}, forged)
    lines = [line for line in log_lines() if line["logger"] == "training_service.access"]
    assert len(lines) == 7
    assert all(line["message"].isprintable() for line in lines)


async def test_only_changes_are_logged(untracked: Service, log_lines: Callable[[], list[Any]]) -> None:
    job_id = await untracked.train()
    await untracked.status(job_id)
    await untracked.stub.CancelTraining(pb.CancelTrainingRequest(job_id=job_id))
    messages = [line["message"] for line in log_lines() if line["logger"] == "training_service.access"]
    assert [message.split(" ")[:2] for message in messages] == [
        [f"/{SERVICE}/Train", "OK"],
        [f"/{SERVICE}/CancelTraining", "OK"],
    ]


async def test_a_log_line_has_the_job_of_the_call(
    untracked: Service, log_lines: Callable[[], list[Any]]
) -> None:
    first, second = await untracked.train(), await untracked.train()
    await asyncio.gather(
        *(
            untracked.stub.CancelTraining(pb.CancelTrainingRequest(job_id=job_id))
            for job_id in (second, first)
        )
    )
    lines = [line for line in log_lines() if line["logger"] == "training_service.access"]
    assert [line["job"] for line in lines[:2]] == [first, second]
    assert sorted(line["job"] for line in lines[2:]) == [first, second]


async def test_a_log_line_has_the_attempt_of_the_report(
    untracked: Service, log_lines: Callable[[], list[Any]]
) -> None:
    authorization = f"Bearer {untracked.tokens.issue(7, 2)}"
    with pytest.raises(grpc.aio.AioRpcError):
        await TrainingReporterStub(untracked.channel).Report(
            reporter_pb.ReportRequest(), metadata=(("authorization", authorization),)
        )
    (line,) = [line for line in log_lines() if line["logger"] == "training_service.access"]
    assert (line["job"], line["attempt"]) == (7, 2)


async def test_calls_are_counted_by_method_and_code(service: Service) -> None:
    def counted(method: str, code: str) -> float | None:
        return service.metrics.registry.get_sample_value(
            "training_service_calls_total", {"method": method, "code": code}
        )

    job_id = await service.train()
    await service.train()
    for call in (service.train(algorithm=""), service.train(name="/"), service.status(99)):
        with pytest.raises(grpc.aio.AioRpcError):
            await call
    with pytest.raises(grpc.aio.AioRpcError):
        await service.call_raw("Train", b"\xff")
    await service.seen(job_id, pb.succeed)
    assert counted("Train", "OK") == 2
    assert counted("Train", "INVALID_ARGUMENT") == 3
    assert counted("GetTrainingStatus", "NOT_FOUND") == 1
    assert counted("Untrain", "UNIMPLEMENTED") is None
    seconds = service.metrics.registry.get_sample_value(
        "training_service_call_seconds_count", {"method": "Train"}
    )
    assert seconds == 5


async def test_a_call_cancelled_by_its_client_is_counted_as_cancelled(service: Service) -> None:
    await service.seen(await service.train({"RUN_SECONDS": "forever"}), pb.running)  # then the client leaves
    async with asyncio.timeout(PATIENCE):
        while await service.metrics.ended.get() != ("WatchTraining", grpc.StatusCode.CANCELLED):
            pass


async def test_reflection_shows_the_service_and_its_messages(untracked: Service) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(untracked.channel)

    async def questions() -> AsyncIterator[Any]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        yield reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE)

    services, file = [answer async for answer in stub.ServerReflectionInfo(questions())]
    names = {service.name for service in services.list_services_response.service}
    assert names >= {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    described = descriptor_pb2.FileDescriptorProto.FromString(
        file.file_descriptor_response.file_descriptor_proto[0]
    )
    (service,) = described.service
    assert {"Train", "GetTrainingStatus"} <= {method.name for method in service.method}


async def test_health_is_known_for_the_service_and_not_for_others(untracked: Service) -> None:
    stub = health_pb2_grpc.HealthStub(untracked.channel)
    await untracked.health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=SERVICE))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    unknown = stub.Check(health_pb2.HealthCheckRequest(service="nope"))
    await untracked.refuses(unknown, grpc.StatusCode.NOT_FOUND)


async def test_streams_end_with_unavailable_when_the_service_stops(service: Service) -> None:
    job_id = await service.train({"RUN_SECONDS": "forever"})
    watch = service.stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id))
    statuses = aiter(watch)
    await anext(statuses)
    service.servicer.close()
    for stream in (statuses, aiter(service.stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id)))):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stream:
                pass
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert caught.value.details() == "the service is restarting; connect again"


async def test_a_stream_of_a_slow_client_ends_with_unavailable(service: Service) -> None:
    """The service closes while it sends: it must end the wait, not the send."""
    job_id = await service.train({"RUN_SECONDS": "forever"})
    folder = Path((await service.status(job_id)).model_uri)
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(bytes(64 * 2**20))
    request = pb.FetchTrainingArtifactRequest(job_id=job_id, name="model.pt")
    pieces = aiter(service.stub.FetchTrainingArtifact(request))
    await anext(pieces)
    await asyncio.sleep(0.2)  # there is no event for a full connection
    service.servicer.close()
    await asyncio.sleep(0.2)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in pieces:
            pass
    assert caught.value.details() == "the service is restarting; connect again"


@pytest.fixture
def log_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[Any]]]:
    """The service's log as JSON records."""
    root, written = logging.getLogger(), io.StringIO()
    level = root.level
    with monkeypatch.context() as patched:
        patched.setattr("sys.stderr", written)
        logs.set_up(LoggingSettings(format="json"))
    (handler,) = root.handlers
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    root.removeHandler(handler)
    root.setLevel(level)
