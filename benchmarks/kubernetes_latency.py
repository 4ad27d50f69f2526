"""The time until a job has its four pods: from Train's answer until the API server has all of them.

A watch reports the pods. The cluster is a control plane without nodes; service and cluster are otherwise
idle. The next job is submitted when the group of the previous job is gone.

The baseline does the least possible work: a bare client with ready manifests creates the master pod, which
owns the other objects, then three workers and the Service concurrently. This client stores nothing.
"""

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from benchmarks.kubernetes_support import (
    Bare,
    Cluster,
    cluster,
    new_namespace,
    or_left_out,
    path_of,
    planned,
    service_on,
)
from benchmarks.support import Row, Server, request, run_alone, workspace
from job_tracker.backends.kubernetes.labels import owned_by
from job_tracker.backends.shared.labels import JOB_ID
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

INSTANCES = 4
_TARGET_MS = 150.0
_FIRST_BARE_ID = 1_000_000
_WARM_UP = 3


def _measure(quick: bool) -> list[Row]:
    count = 10 if quick else 40
    with (
        cluster() as fresh,
        workspace() as folder,
        service_on(fresh, folder, namespace := new_namespace(fresh), capacity=INSTANCES) as server,
    ):
        times = asyncio.run(_launches(server, fresh, namespace, _WARM_UP + count))[_WARM_UP:]
    launches, bare = zip(*times, strict=True)
    median, peer = statistics.median(launches), statistics.median(bare)
    return [
        Row(
            f"pods-latency: Train answered → {INSTANCES} pods created, median of {count}",
            f"{median:.0f} ms (p90 {sorted(launches)[count * 9 // 10]:.0f})",
            f"{peer:.0f} ms",
            f"{median / peer:.1f}",
            f"< {_TARGET_MS:.0f} ms",
            median < _TARGET_MS,
        )
    ]


measure = or_left_out(_measure, "pods-latency")


async def _launches(server: Server, fresh: Cluster, namespace: str, count: int) -> list[tuple[float, float]]:
    """Launch `count` jobs with the service and as many with the bare client, in turn.

    Return the milliseconds of each pair of launches: first with the service, then with the bare client.
    """
    async with (
        grpc.aio.insecure_channel(server.address) as channel,
        Bare.connected(fresh) as bare,
        _watching(bare, namespace) as pods,
    ):
        stub: Any = TrainingServiceStub(channel)  # the generated type is for synchronous channels
        return [
            (
                await _by_the_service(stub, pods),
                await _by_hand(bare, namespace, _FIRST_BARE_ID + number, pods),
            )
            for number in range(count)
        ]


class _Pods:
    """The pods that a watch has reported, by job."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = defaultdict(set)
        self._changed = asyncio.Event()

    def add(self, pod: Any) -> None:
        self._names[pod["metadata"]["labels"][JOB_ID]].add(pod["metadata"]["name"])
        self._changed.set()

    def remove(self, pod: Any) -> None:
        self._names[pod["metadata"]["labels"][JOB_ID]].discard(pod["metadata"]["name"])
        self._changed.set()

    async def until(self, job_id: int, number: int) -> float:
        """Wait until the job has exactly this many pods, and return the time."""
        async with asyncio.timeout(60):
            while len(self._names[str(job_id)]) != number:
                self._changed.clear()
                await self._changed.wait()
        return time.perf_counter()


@asynccontextmanager
async def _watching(bare: Bare, namespace: str) -> AsyncIterator[_Pods]:
    pods = _Pods()
    changes = bare.watch(f"{path_of(namespace)}/pods")
    task = asyncio.create_task(_follow(changes, pods))
    try:
        yield pods
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _follow(changes: AsyncIterator[Any], pods: _Pods) -> None:
    async for change in changes:
        (pods.remove if change["type"] == "DELETED" else pods.add)(change["object"])


async def _by_the_service(stub: Any, pods: _Pods) -> float:
    job_id = (await stub.Train(request(PARALLEL_INSTANCES=str(INSTANCES)))).job_id
    answered = time.perf_counter()
    made = await pods.until(job_id, INSTANCES)
    await stub.CancelTraining(pb.CancelTrainingRequest(job_id=job_id))
    async for status in stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id)):
        last = status
    if last.status != pb.cancelled:
        raise RuntimeError(f"job {job_id} was not cancelled: {last}")
    await pods.until(job_id, 0)
    return 1000 * (made - answered)


async def _by_hand(bare: Bare, namespace: str, job_id: int, pods: _Pods) -> float:
    plan = planned(job_id, INSTANCES, namespace)
    assert plan.service
    begun = time.perf_counter()
    master = await bare.create("pods", plan.pods[0])
    await asyncio.gather(
        *(bare.create("pods", owned_by(pod, master)) for pod in plan.pods[1:]),
        bare.create("services", owned_by(plan.service, master)),
    )
    made = await pods.until(job_id, INSTANCES)
    names = [f"pods/{pod['metadata']['name']}" for pod in plan.pods]
    for name in (*names, f"services/{plan.service['metadata']['name']}"):
        await bare.call("DELETE", f"{path_of(namespace)}/{name}", {"gracePeriodSeconds": 0}, missing=True)
    await pods.until(job_id, 0)
    return 1000 * (made - begun)


if __name__ == "__main__":
    run_alone(measure)
