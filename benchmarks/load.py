"""A client that keeps 64 calls in flight: python -m benchmarks.load ADDRESS METHOD SECONDS [JOB_ID…]

It prints the calls per second, counted after a warm-up. A call that fails ends it.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Awaitable, Callable

import grpc

from benchmarks.support import IN_FLIGHT, request
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

_WARM_UP_SECONDS = 0.3


async def rate(call: Callable[[], Awaitable[object]], seconds: float) -> float:
    """How often a second `call` returns, with 64 of them running at any time."""
    counts_from = time.perf_counter() + _WARM_UP_SECONDS
    ends = counts_from + seconds
    counted = 0

    async def worker() -> None:
        nonlocal counted
        while (now := time.perf_counter()) < ends:
            await call()
            counted += now >= counts_from
    
    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return counted / (time.perf_counter() - counts_from)


async def main(address: str, method: str, seconds: float, job_ids: list[int]) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = TrainingServiceStub(channel)
        statuses = itertools.cycle([pb.GetTrainingStatusRequest(job_id=job_id) for job_id in job_ids])
        train = request()
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "Train": lambda: stub.Train(train),  # type: ignore[dict-item, return-value]
            "GetTrainingStatus": lambda: stub.GetTrainingStatus(next(statuses)),  # type: ignore[dict-item, return-value]
        }
        print(await rate(calls[method], seconds))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), [int(text) for text in sys.argv[4:]]))
