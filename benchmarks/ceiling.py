"""The ceiling: a grpc.aio server with empty handlers, which shows the cost of gRPC itself in Python.

    python -m benchmarks.ceiling [--raw] [STATUS]...

Each STATUS is the answer for its job: a serialized GetTrainingStatusResponse, in hexadecimal digits. With
--raw, handlers take and return bytes, and every job gets the first status.
"""

import asyncio
import signal
import sys
from collections.abc import Iterable, Sequence

import grpc

from training_service._generated import training_reporter_pb2 as reporter_pb
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_reporter_pb2_grpc import (
    TrainingReporterServicer,
    add_TrainingReporterServicer_to_server,
)
from training_service._generated.training_service_pb2_grpc import (
    TrainingServiceServicer,
    add_TrainingServiceServicer_to_server,
)

Context = grpc.aio.ServicerContext[object, object]


class EmptyServicer(TrainingServiceServicer):
    def __init__(self, statuses: Iterable[pb.GetTrainingStatusResponse]) -> None:
        self._statuses = {status.job_id: status for status in statuses}

    async def Train(self, request: pb.TrainRequest, context: Context) -> pb.TrainResponse:  # noqa: ARG002, N802
        return pb.TrainResponse(job_id=1)

    async def GetTrainingStatus(  # noqa: N802
        self,
        request: pb.GetTrainingStatusRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.GetTrainingStatusResponse:
        return self._statuses[request.job_id]


def raw_handlers(statuses: Sequence[bytes]) -> grpc.GenericRpcHandler:
    """Return empty handlers of Train and GetTrainingStatus that take and return serialized messages."""
    train = pb.TrainResponse(job_id=1).SerializeToString()

    async def answer_train(data: bytes, context: Context) -> bytes:  # noqa: ARG001
        return train

    async def answer_status(data: bytes, context: Context) -> bytes:  # noqa: ARG001
        return statuses[0]

    return grpc.method_handlers_generic_handler(
        "training.TrainingService",
        {
            "Train": grpc.unary_unary_rpc_method_handler(answer_train),
            "GetTrainingStatus": grpc.unary_unary_rpc_method_handler(answer_status),
        },
    )


class EmptyReporter(TrainingReporterServicer):
    async def Report(  # noqa: N802
        self,
        request: reporter_pb.ReportRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> reporter_pb.ReportResponse:
        return reporter_pb.ReportResponse()


async def serve(statuses: Sequence[bytes], *, is_raw: bool) -> None:
    stop_requested = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop_requested.set)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    # The server has only the calls that are measured.
    if is_raw:
        server.add_generic_rpc_handlers((raw_handlers(statuses),))
    else:
        messages = map(pb.GetTrainingStatusResponse.FromString, statuses)
        add_TrainingServiceServicer_to_server(EmptyServicer(messages), server)  # type: ignore[abstract]
    add_TrainingReporterServicer_to_server(EmptyReporter(), server)  # type: ignore[abstract]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"serving at 127.0.0.1:{port}", file=sys.stderr, flush=True)
    await stop_requested.wait()
    await server.stop(None)


if __name__ == "__main__":
    texts = [argument for argument in sys.argv[1:] if argument != "--raw"]
    asyncio.run(serve(list(map(bytes.fromhex, texts)), is_raw="--raw" in sys.argv[1:]))
