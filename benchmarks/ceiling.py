"""The ceiling: a grpc.aio server with the service's own messages, whose handlers do nothing.

Options are those of the service. What is left is what gRPC itself costs in Python.
"""

import asyncio
import signal
import sys

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
    async def Train(self, request: pb.TrainRequest, context: Context) -> pb.TrainResponse:  # noqa: ARG002, N802
        return pb.TrainResponse(job_id=1)

    async def GetTrainingStatus(  # noqa: N802
        self,
        request: pb.GetTrainingStatusRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.GetTrainingStatusResponse:
        return pb.GetTrainingStatusResponse(job_id=request.job_id)


class EmptyReporter(TrainingReporterServicer):
    async def Report(  # noqa: N802
        self,
        request: reporter_pb.ReportRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> reporter_pb.ReportResponse:
        return reporter_pb.ReportResponse()


async def serve() -> None:
    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_stop.set)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    # Only the calls that are measured are there.
    add_TrainingServiceServicer_to_server(EmptyServicer(), server)  # type: ignore[abstract]
    add_TrainingReporterServicer_to_server(EmptyReporter(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"serving at 127.0.0.1:{port}", file=sys.stderr, flush=True)
    await told_to_stop.wait()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(serve())
