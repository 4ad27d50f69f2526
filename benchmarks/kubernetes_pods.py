"""Pods created per second for 200 jobs of 4 instances, on a control plane without nodes.

Without nodes, only the creation of pods is measured. The pods are created in three ways, in turn, in the same
run:

- The service, in its own process with its usual store on the disk: from the first of 200 concurrent calls
  of Train until the API server has all 800 pods and 200 Services.
- The Job controller of Kubernetes, with higher rate limits of its client: from the first of 200 Jobs of
  parallelism 4, created with 32 calls in flight, until the API server has the 800 pods. The controller does
  less than the service: it creates no Services, need not create one pod first as the owner of the other
  objects, and stores nothing. It works on 5 Jobs at a time; Kubernetes 1.20 has no flag for this number.
- A loop of `kubernetes.aio` that creates the same pods and Services, with 32 calls in flight, in any order.
"""

import asyncio
import copy
import functools
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from benchmarks.kubernetes_support import (
    CALLS,
    Bare,
    Cluster,
    at_most,
    cluster,
    jobs_path,
    new_namespace,
    or_left_out,
    planned,
    remove_namespace,
    service_on,
)
from benchmarks.support import Row, interleaved, ratio, request, run_alone, workspace
from job_tracker.backends.kubernetes.plan import KubernetesPlan
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

INSTANCES = 4
_NO_LIMITS = "--kube-api-qps 2000 --kube-api-burst 4000"


def _measure(quick: bool) -> list[Row]:
    rounds, jobs = (3, 50) if quick else (5, 200)
    with cluster(TEST_CLUSTER_CONTROLLER_MANAGER_ARGS=_NO_LIMITS) as fresh:
        ways = (_by_the_service, _by_the_job_controller, _by_a_bare_loop)
        _in_a_namespace(fresh, 5, _by_a_bare_loop)  # so that the API server's one-time work does not count
        ours, controller, loop = interleaved(
            rounds, *(functools.partial(_in_a_namespace, fresh, jobs, way) for way in ways)
        )
    return [
        _row(f"pods: {jobs} jobs × {INSTANCES}, pods/s, against the Job controller", ours, controller, 1.0),
        _row(f"pods: {jobs} jobs × {INSTANCES}, pods/s, against a bare loop", ours, loop, 0.7),
    ]


measure = or_left_out(_measure, "pods")


def _row(name: str, ours: list[float], theirs: list[float], target: float) -> Row:
    times = ratio(ours, theirs)
    return Row(
        name,
        f"{statistics.median(ours):.0f}/s",
        f"{statistics.median(theirs):.0f}/s",
        f"{times:.2f}",
        f"≥ {target}",
        times >= target,
    )


Way = Callable[[Cluster, Bare, str, int], Awaitable[float]]


def _in_a_namespace(fresh: Cluster, jobs: int, way: Way) -> float:
    """Create the pods of `jobs` jobs in the given way, in a temporary namespace.

    Return the pods per second.
    """

    async def run() -> float:
        async with Bare.connected(fresh) as bare:
            return jobs * INSTANCES / await way(fresh, bare, namespace, jobs)

    namespace = new_namespace(fresh)
    try:
        return asyncio.run(run())
    finally:
        remove_namespace(fresh, namespace)


async def _by_the_service(fresh: Cluster, bare: Bare, namespace: str, jobs: int) -> float:
    with (
        workspace() as folder,
        service_on(fresh, Path(folder), namespace, capacity=jobs * INSTANCES) as server,
    ):
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub: Any = TrainingServiceStub(channel)  # the generated type is for synchronous channels
            await channel.channel_ready()
            train = request(PARALLEL_INSTANCES=str(INSTANCES))
            begun = time.perf_counter()
            submitted = asyncio.gather(*(stub.Train(train) for _ in range(jobs)))
            await bare.until("pods", namespace, jobs * INSTANCES)
            await bare.until("services", namespace, jobs)
            seconds = time.perf_counter() - begun
            await submitted
    return seconds


async def _by_the_job_controller(_: Cluster, bare: Bare, namespace: str, jobs: int) -> float:
    manifests = [_job(planned(job_id, INSTANCES, namespace)) for job_id in range(1, jobs + 1)]
    begun = time.perf_counter()
    await at_most(
        CALLS,
        [functools.partial(bare.call, "POST", jobs_path(namespace), manifest) for manifest in manifests],
    )
    await bare.until("pods", namespace, jobs * INSTANCES)
    return time.perf_counter() - begun


def _job(plan: KubernetesPlan) -> dict[str, Any]:
    """Return a Job whose pods equal the plan's workers, except for fields that only one pod may have."""
    pod: Any = copy.deepcopy(plan.pods[-1])
    del pod["spec"]["hostname"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": plan.group.name},
        "spec": {
            "parallelism": INSTANCES,
            "completions": INSTANCES,
            "template": {
                "metadata": {key: pod["metadata"][key] for key in ("labels", "annotations")},
                "spec": pod["spec"],
            },
        },
    }


async def _by_a_bare_loop(_: Cluster, bare: Bare, namespace: str, jobs: int) -> float:
    plans = [planned(job_id, INSTANCES, namespace) for job_id in range(1, jobs + 1)]
    pods = [functools.partial(bare.create, "pods", pod) for plan in plans for pod in plan.pods]
    services = [functools.partial(bare.create, "services", plan.service) for plan in plans if plan.service]
    begun = time.perf_counter()
    await at_most(CALLS, pods + services)
    return time.perf_counter() - begun


if __name__ == "__main__":
    run_alone(measure)
