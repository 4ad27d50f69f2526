"""Several addresses: their notation, and calls while one replica is away."""

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from tests.support.blocking_client import Connect
from training_service._generated import catalog_service_pb2 as cpb
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient
from training_service.client.channel import target_of
from training_service.client.errors import InvalidRequest, Unavailable


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("localhost:51001", "localhost:51001"),
        ("dns:///training.example:51001", "dns:///training.example:51001"),
        ("127.0.0.1:1,127.0.0.2:2", "ipv4:127.0.0.1:1,127.0.0.2:2"),
        ("127.0.0.1:1, localhost:2", "ipv4:127.0.0.1:1,127.0.0.1:2"),
        ("[::1]:1,[fe80::2]:2", "ipv6:[::1]:1,[fe80::2]:2"),
        ("ipv4:127.0.0.1:1,127.0.0.1:2", "ipv4:127.0.0.1:1,127.0.0.1:2"),
        ("[::1]:1", "[::1]:1"),
        ("unix:/run/training.sock", "unix:/run/training.sock"),
    ],
)
def test_addresses_become_grpc_targets(address: str, target: str) -> None:
    assert target_of(address) == target


@pytest.mark.parametrize(
    "address", ["a.example:1,b.example:2", "127.0.0.1:1,[::1]:1", "127.0.0.1:1,", ",", "1,2"]
)
def test_several_addresses_are_ip_addresses_of_one_family(address: str) -> None:
    with pytest.raises(InvalidRequest, match="write several addresses as IP:PORT,IP:PORT"):
        target_of(address)


@pytest.mark.parametrize(
    ("address", "example"),
    [
        ("localhost", "localhost:51001"),
        ("localhost:", "localhost:51001"),
        ("training.example", "training.example:51001"),
        ("127.0.0.1", "127.0.0.1:51001"),
        ("[::1]", "[::1]:51001"),
        ("::1", "[::1]:51001"),
    ],
)
def test_an_address_without_a_port_is_named(address: str, example: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        target_of(address)
    assert str(caught.value) == f"address: {address!r} has no port; write HOST:PORT, such as {example}"


class Replica:
    """Answers with its number. Number 0 answers that it is going away."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls = 0
        self._counting = threading.Lock()
        self._threads = ThreadPoolExecutor(4)
        self.server = grpc.server(self._threads, options=[("grpc.so_reuseport", 0)])
        handler = grpc.unary_unary_rpc_method_handler(
            self._status,
            request_deserializer=pb.GetTrainingStatusRequest.FromString,
            response_serializer=pb.GetTrainingStatusResponse.SerializeToString,
        )
        methods = {"GetTrainingStatus": handler}
        service = grpc.method_handlers_generic_handler("training.TrainingService", methods)
        self.server.add_generic_rpc_handlers((service,))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def _status(
        self, request: pb.GetTrainingStatusRequest, context: grpc.ServicerContext
    ) -> pb.GetTrainingStatusResponse:
        with self._counting:
            self.calls += 1
        if self.number == 0:
            context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
        return pb.GetTrainingStatusResponse(job_id=self.number)

    def stop(self) -> None:
        self.server.stop(0).wait()
        self._threads.shutdown()


def test_calls_go_to_all_replicas_that_are_left(connect: Connect) -> None:
    one, two = Replica(1), Replica(2)
    try:
        with connect(f"{one.address},{two.address}") as client:
            first = client.status(1).job_id
            while client.status(1).job_id == first:  # until the other is connected, too
                pass
            one.stop()
            assert {client.status(1).job_id for _ in range(50)} == {2}
    finally:
        one.stop()
        two.stop()


def test_a_call_that_one_replica_aborts_is_repeated_at_another(connect: Connect) -> None:
    leaving, staying = Replica(0), Replica(1)
    try:
        with connect(f"{leaving.address},{staying.address}") as client:
            while leaving.calls == 0:
                assert client.status(1).job_id == 1
            assert client.status(1).job_id == 1
    finally:
        leaving.stop()
        staying.stop()


def test_a_removal_is_not_repeated_since_its_repeat_would_fail() -> None:
    removed = []

    def remove(request: cpb.RemoveQueueRequest, context: grpc.ServicerContext) -> cpb.RemoveQueueResponse:
        if request.name in removed:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such queue")
        removed.append(request.name)
        context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost")

    handler = grpc.unary_unary_rpc_method_handler(
        remove,
        request_deserializer=cpb.RemoveQueueRequest.FromString,
        response_serializer=cpb.RemoveQueueResponse.SerializeToString,
    )
    service = grpc.method_handlers_generic_handler("training.CatalogService", {"RemoveQueue": handler})
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads, options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((service,))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            with TrainingClient(address) as client, pytest.raises(Unavailable, match="the answer was lost"):
                client.catalog.remove_queue("night")
        finally:
            server.stop(0).wait()
    assert removed == ["night"]
