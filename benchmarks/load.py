"""The client that makes load, in a separate process: it keeps 64 calls in flight, and counts them.

It reads the measurements to make from its standard input, one JSON object per line:

    {"address": …, "method": …, "seconds": …, "job_ids": […], "tokens": […],
     "tls": {"ca": …, "cert": …, "key": …}}

It answers each line with the calls per second. Calls use the jobs and the tokens in turn. A call that fails
ends the client. The method Connect calls GetTrainingStatus, with a new connection for each call.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from benchmarks.support import IN_FLIGHT, request
from training_service._generated import training_reporter_pb2 as reporter_pb
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_reporter_pb2_grpc import TrainingReporterStub
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub
from training_service.client.connection import Connection

_WARM_UP_SECONDS = 0.2


async def rate(call: Callable[[], Awaitable[object]], seconds: float) -> float:
    """After a warm-up, make calls for `seconds`, 64 of them at a time. Return how many end per second."""
    counts_from = time.perf_counter() + _WARM_UP_SECONDS
    ends = counts_from + seconds
    counted = 0

    async def worker() -> None:
        nonlocal counted
        while True:
            await call()
            now = time.perf_counter()
            if now > ends:
                return
            counted += now >= counts_from

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return counted / seconds


async def measure(
    address: str, method: str, seconds: float, job_ids: list[int], tokens: list[str], tls: dict[str, str]
) -> float:
    connection = Connection(address, **tls)
    statuses = itertools.cycle([pb.GetTrainingStatusRequest(job_id=job_id) for job_id in job_ids])
    if method == "Connect":
        return await rate(lambda: connect(connection, next(statuses)), seconds)
    async with open_channel(connection) as channel:
        stub: Any = TrainingServiceStub(channel)  # the generated type is for synchronous channels
        train = request()
        callers = itertools.cycle([(("authorization", f"Bearer {token}"),) for token in tokens] or [()])
        if method == "Report":
            return await rate(reports(TrainingReporterStub(channel), tokens), seconds)
        if method == "Train":
            return await rate(lambda: stub.Train(train, metadata=next(callers)), seconds)
        return await rate(lambda: stub.GetTrainingStatus(next(statuses), metadata=next(callers)), seconds)


def open_channel(connection: Connection) -> grpc.aio.Channel:
    """Return a channel with its own connection, and otherwise with gRPC's default options."""
    alone = [("grpc.use_local_subchannel_pool", 1)]
    if credentials := connection.credentials:
        return grpc.aio.secure_channel(connection.address, credentials, alone)
    return grpc.aio.insecure_channel(connection.address, alone)


async def connect(connection: Connection, request: pb.GetTrainingStatusRequest) -> None:
    """Open a connection, make the call GetTrainingStatus on it, and close it."""
    async with open_channel(connection) as channel:
        stub: Any = TrainingServiceStub(channel)
        await stub.GetTrainingStatus(request)


def reports(stub: Any, tokens: list[str]) -> Callable[[], Awaitable[object]]:
    """Return a function that sends a report: a step with two metrics. Each call uses the next token."""
    turns = itertools.cycle([(("authorization", f"Bearer {token}"),) for token in tokens])
    steps = itertools.count(1)

    def send() -> Awaitable[object]:
        step = next(steps)
        values = [reporter_pb.MetricValue(name=name, value=1 / step, step=step) for name in ("loss", "lr")]
        request = reporter_pb.ReportRequest(step=step, total_steps=10**9, metrics=values)
        sent: Awaitable[object] = stub.Report(request, metadata=next(turns))
        return sent

    return send


async def main() -> None:
    for line in sys.stdin:
        print(await measure(**json.loads(line)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
