"""Requests of strangers cannot fill the service's memory, and it returns memory that it no longer needs."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import psutil

from tests.support.http2 import reset_streams
from tests.support.server import server
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

if TYPE_CHECKING:
    from tests.support.server import Server
else:
    Server = Any

__all__ = ["server"]

MB = 10**6
ZEROS = bytes(15 << 20)


class Memory:
    """The growth of a server's resident memory since this object was created."""

    def __init__(self, server: Server) -> None:
        assert server.process is not None
        self._process = psutil.Process(server.process.pid)
        self._before = self._resident()

    def grown(self) -> float:
        """Return the growth in MB."""
        return (self._resident() - self._before) / MB

    def _resident(self) -> int:
        return int(self._process.memory_info().rss)


def answer(address: str) -> None:
    """Return once a call is answered. gRPC cancels calls while too many wait."""
    with grpc.insecure_channel(address) as channel:
        stub = TrainingServiceStub(channel)
        while True:
            call = stub.ListTrainingJobs.future(pb.ListTrainingJobsRequest(), timeout=30)
            if call.code() is not grpc.StatusCode.CANCELLED:
                call.result()
                return


def test_reset_streams_use_no_memory(server: Server) -> None:
    with server.start() as client:
        list(client.list())
        memory = Memory(server)
        with ThreadPoolExecutor(4) as pool:
            sent = list(pool.map(lambda _: reset_streams(server.address, 5_000), range(4)))
        assert sum(sent) >= 4_000, "the server accepted most of them"
        answer(server.address)
        assert memory.grown() < 90


def test_compressed_requests_are_not_unpacked_beyond_the_size_limit(server: Server) -> None:
    with server.start() as client, grpc.insecure_channel(server.address) as channel:
        list(client.list())
        memory = Memory(server)
        train: Any = channel.unary_unary("/training.TrainingService/Train")
        calls = [train.future(ZEROS, compression=grpc.Compression.Gzip) for _ in range(10)]
        assert {call.code() for call in calls} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert memory.grown() < 30


def test_memory_is_returned_to_the_system(server: Server) -> None:
    with server.start() as client:
        list(client.list())
        memory = Memory(server)
        for _ in range(3):
            reset_streams(server.address, 5_000)
        while memory.grown() > 20:
            time.sleep(0.2)
