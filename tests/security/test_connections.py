"""Silent connections are closed, and do not use up the service's descriptors."""

import asyncio
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from trainer_kit import grpc_sink
from trainer_kit._generated import training_reporter_pb2 as reporter_pb

from tests.support.frozen import freeze
from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb
from training_service._generated import training_service_pb2_grpc as pb_grpc
from training_service.api.connections import connection_options
from training_service.client import AsyncTrainingClient, TrainingClient

DESCRIPTORS = 200
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
PROGRAM = Path(__file__).parents[1] / "support" / "program.py"
WATCH = """
import sys, time
from training_service.client import TrainingClient
stream = TrainingClient(sys.argv[1]).watch(1)
next(stream)
print("watching", flush=True)
time.sleep(60)
"""


class Answering(pb_grpc.TrainingServiceServicer):
    """Answers calls, and records the connections on which they arrive."""

    def __init__(self) -> None:
        self.connections: set[str] = set()
        self.end, self.left = asyncio.Event(), asyncio.Event()

    async def ListTrainingJobs(  # noqa: N802
        self, request: pb.ListTrainingJobsRequest, context: Any
    ) -> pb.ListTrainingJobsResponse:
        self.connections.add(context.peer())
        return pb.ListTrainingJobsResponse()

    async def WatchTraining(  # noqa: N802
        self, request: pb.WatchTrainingRequest, context: Any
    ) -> AsyncIterator[pb.GetTrainingStatusResponse]:
        try:
            yield pb.GetTrainingStatusResponse(job_id=1, status=pb.running)
            await self.end.wait()
            yield pb.GetTrainingStatusResponse(job_id=1, status=pb.succeed)
        finally:
            self.left.set()

    async def report(self, request: Any, context: Any) -> reporter_pb.ReportResponse:
        self.connections.add(context.peer())
        return reporter_pb.ReportResponse()


class Served:
    """A server with the service's limits on connections."""

    def __init__(self, descriptors: int, **bounds: float) -> None:
        options = [("grpc.so_reuseport", 0), *connection_options(descriptors, **bounds)]
        self.servicer = Answering()  # type: ignore[abstract]  # its other calls are UNIMPLEMENTED
        self.server = grpc.aio.server(options=options)
        pb_grpc.add_TrainingServiceServicer_to_server(self.servicer, self.server)
        report = grpc.unary_unary_rpc_method_handler(
            self.servicer.report,
            request_deserializer=reporter_pb.ReportRequest.FromString,
            response_serializer=reporter_pb.ReportResponse.SerializeToString,
        )
        reporter = grpc.method_handlers_generic_handler("training.TrainingReporter", {"Report": report})
        self.server.add_generic_rpc_handlers((reporter,))
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{self.port}"


Serve = Callable[..., Coroutine[Any, Any, Served]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def make(descriptors: int = 1000, **bounds: float) -> Served:
            made = Served(descriptors, **bounds)
            await made.server.start()
            stack.push_async_callback(made.server.stop, None)
            return made

        yield make


async def seconds_until_closed(port: int, said: bytes = b"") -> float:
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionResetError:
        pass
    writer.close()
    return time.monotonic() - began


@pytest.mark.parametrize("said", [b"", PREFACE[:10]], ids=["nothing", "half a preface"])
async def test_a_connection_without_a_preface_is_closed(serve: Serve, said: bytes) -> None:
    served = await serve(silence_seconds=0.5)
    async with asyncio.timeout(60):  # without our limit, gRPC closes it after 120 s
        assert await seconds_until_closed(served.port, said) >= 0.4


async def test_a_connection_without_calls_is_closed(serve: Serve) -> None:
    served = await serve(age_seconds=0.2, answer_seconds=0.2)
    async with asyncio.timeout(PATIENCE):
        await seconds_until_closed(served.port, PREFACE)


async def test_connections_beyond_the_limit_are_closed_at_once(serve: Serve) -> None:
    served = await serve(descriptors=20, silence_seconds=6000)
    with ExitStack() as silent:
        for _ in range(10):
            silent.enter_context(socket.create_connection(("127.0.0.1", served.port)))
        async with asyncio.timeout(PATIENCE):
            await seconds_until_closed(served.port)


async def test_a_stream_outlives_the_maximum_age_of_connections(serve: Serve) -> None:
    served = await serve(age_seconds=0.1)
    async with AsyncTrainingClient(served.address) as client:
        stream = client.watch(1)
        assert (await anext(stream)).status == pb.running
        while len(served.servicer.connections) < 10:  # connections of other calls are closed in the meantime
            _ = [job async for job in client.list()]
        assert not served.servicer.left.is_set()
        served.servicer.end.set()
        assert [status.status async for status in stream] == [pb.succeed]


async def test_clients_do_not_notice_closed_connections(serve: Serve) -> None:
    served = await serve(age_seconds=0.05)
    enough = 20

    def lists() -> None:
        with TrainingClient(served.address) as client:
            while len(served.servicer.connections) < enough:
                list(client.list())

    async def lists_async() -> None:
        async with AsyncTrainingClient(served.address) as client:
            while len(served.servicer.connections) < enough:
                _ = [job async for job in client.list()]

    def reports() -> None:
        send = grpc_sink._connect(served.address, "token")
        while len(served.servicer.connections) < enough:
            send(reporter_pb.ReportRequest())

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(asyncio.to_thread(lists), lists_async(), asyncio.to_thread(reports))


async def test_a_peer_that_disappears_silently_is_detected(serve: Serve) -> None:
    served = await serve(ping_seconds=0.5, answer_seconds=0.5)
    command = [sys.executable, "-c", WATCH, served.address]
    client = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert client.stdout
    assert await client.stdout.readline() == b"watching\n"
    freeze(client.pid)  # its kernel still acknowledges, like a proxy in front of a lost peer
    try:
        async with asyncio.timeout(PATIENCE):
            await served.servicer.left.wait()
    finally:
        client.kill()
        await client.wait()


class Service:
    """The service as a program with a low limit of descriptors."""

    def __init__(self, folder: Path) -> None:
        config = folder / "config.toml"
        config.write_text(
            f'[algorithms.program.process]\ncommand = ["python", "{PROGRAM}"]\n[metrics]\nport = 0\n'
        )
        command = [str(Path(sys.executable).with_name("training-service")), "serve"]
        command += ["--config", str(config), "--data-dir", str(folder), "--address", "127.0.0.1:0"]
        limited = ["bash", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "bash", *command]
        self.log = folder / "service.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(limited, stderr=log)
        while "serving at" not in (text := self.log.read_text()):
            assert self.process.poll() is None, text
            time.sleep(0.02)
        self.address = text.split("serving at ")[1].split(",")[0]
        self.metrics = text.split("metrics at http://")[1].split("/")[0]

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(timeout=PATIENCE) == 0


@pytest.fixture
def service(tmp_path: Path, storage: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.end()


def connected(address: str, number: int) -> list[socket.socket]:
    host, _, port = address.rpartition(":")
    return [socket.create_connection((host, int(port)), timeout=60) for _ in range(number)]


def is_closed(connection: socket.socket) -> bool:
    """Wait up to a minute for the other side to close the connection; return whether it did."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def test_three_hundred_silent_connections_leave_descriptors_for_jobs_and_are_closed(
    service: Service,
) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 400, "this test needs descriptors, too"
    with ExitStack() as silent, TrainingClient(service.address) as client:
        list(client.list())  # connects before the others
        connections = connected(service.address, 300)
        for connection in connections:
            silent.enter_context(connection)
        job = client.submit("program", "1", "v1", instances=3)
        assert client.wait(job, timeout=PATIENCE).status == pb.succeed
        assert all(map(is_closed, connections))
        with TrainingClient(service.address) as other:
            assert other.status(job).status == pb.succeed
    assert "Too many open files" not in service.log.read_text()


def test_silent_connections_to_the_metrics_are_closed_and_delay_no_job(service: Service) -> None:
    with ExitStack() as silent, TrainingClient(service.address) as client:
        connections = connected(service.metrics, 300)
        for connection in connections:
            silent.enter_context(connection)
        job = client.submit("program", "1", "v1", instances=3)
        assert client.wait(job, timeout=PATIENCE).status == pb.succeed
        assert all(map(is_closed, connections))
        with urllib.request.urlopen(f"http://{service.metrics}/metrics", timeout=PATIENCE) as answer:
            assert b"training_service_build_info" in answer.read()
    assert "Traceback" not in service.log.read_text()
