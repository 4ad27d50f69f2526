"""Measures how soon new jobs are launched while many jobs are cancelled at once, and how long it takes until
all cancelled jobs have ended.

On processes: 70 jobs that ignore SIGTERM, with a grace period of 20 s, and free capacity for new jobs. On a
cluster: 1,000 jobs with one pod each on simulated nodes. The pods run for ever and have no logs. New jobs are
submitted one after another until the cancelled ones have ended; the slowest launch counts. The time of a
launch runs from Train's answer until the pod of the job's master is created, or the master's process runs.

`--on processes` and `--on cluster` measure only one of the two.
"""

import asyncio
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from benchmarks.kubernetes_steady import api_requests
from benchmarks.kubernetes_support import (
    Bare,
    Cluster,
    at_most,
    cluster,
    new_namespace,
    or_left_out,
    path_of,
    planned,
    service_on,
)
from benchmarks.support import Row, request, run_alone, service, workspace
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

_PODS_PER_NODE = 100
_CALLS = 32
_FREE = 100
"""Capacity for new jobs. New jobs are cancelled, too, and use this capacity until they have ended."""
_GRACE = 20
_IGNORES = "[ $EPOCHS = 0 ] || { trap '' TERM; while :; do sleep 1 & wait; done; }"
"""The command of jobs on processes. New jobs have EPOCHS=0 and end at once, so the next job can start."""
_LAUNCH_TARGET, _END_TARGET = 1.0, 30.0
_LOOK_SECONDS = 0.02
_LIST_SECONDS = 0.5  # listing a thousand jobs costs the service as much as several launches
_PAUSE_SECONDS = 0.5
_PATIENCE = 600.0
_PAGE = 1000
# The number of jobs on a page of live jobs, with the newest jobs first. Fewer new jobs than this are live at
# the same time, so the page also shows older jobs that are still live. Longer pages would slow the service.
_LOOKED_AT = 200


class Cancelled(NamedTuple):
    """The seconds of each launch of a new job, and the seconds until all cancelled jobs had ended."""

    launches: Sequence[float]
    seconds: float


def _processes(quick: bool) -> list[Row]:
    jobs, grace = (70, 3) if quick else (70, _GRACE)
    with (
        workspace() as folder,
        service(
            folder, command=["sh", "-c", _IGNORES], capacity=jobs + _FREE, jobs__stop_grace=str(grace)
        ) as it,
        it.stub() as stub,
    ):
        seen = _cancel_all(stub, jobs)
    name = f"cancelling: {jobs} processes that ignore SIGTERM, grace {grace} s"
    return [_launch_row(name, seen), Row(f"{name}: all ended", f"{seen.seconds:.1f} s")]


def _pods(quick: bool) -> list[Row]:
    jobs = 200 if quick else 1_000
    with _free_port() as port, cluster() as fresh, workspace() as folder:
        namespace = new_namespace(fresh)
        fresh.hollow(-(-(jobs + _FREE) // _PODS_PER_NODE))
        flags = [f"--set=metrics.port={port}"]
        with (
            service_on(fresh, folder, namespace, capacity=jobs + _FREE, flags=flags) as server,
            server.stub() as stub,
        ):
            before: dict[str, int] = {}
            seen = _cancel_all(stub, jobs, lambda: before.update(api_requests(port)))
            calls = {kind: number - before.get(kind, 0) for kind, number in api_requests(port).items()}
        bare = asyncio.run(_delete_all(fresh, new_namespace(fresh), jobs))
    name = f"cancelling: {jobs:,} jobs of one pod"
    requests = ", ".join(
        f"{kind} {number / jobs:.2f}" for kind, number in sorted(calls.items()) if number > jobs / 20
    )
    return [
        _launch_row(name, seen),
        Row(
            f"{name}: all ended",
            f"{seen.seconds:.1f} s",
            f"{bare:.1f} s: a bare loop that deletes the same number of pods",
            f"{bare / seen.seconds:.2f}",
            target=f"≤ {_END_TARGET:.0f} s",
            met=seen.seconds <= _END_TARGET,
        ),
        Row(f"{name}: API requests a job", requests),
    ]


async def _delete_all(fresh: Cluster, namespace: str, number: int) -> float:
    """Create pods, and return the seconds that a bare loop of calls takes to delete all of them."""
    async with Bare.connected(fresh) as bare:
        pods = [planned(job_id, 1, namespace).pods[0] for job_id in range(1, number + 1)]
        await at_most(_CALLS, [partial(bare.create, "pods", pod) for pod in pods])
        running = f"{path_of(namespace)}/pods?fieldSelector=status.phase%3DRunning"
        async with asyncio.timeout(_PATIENCE):
            while len((await bare.call("GET", running))["items"]) < number:
                await asyncio.sleep(2)
        body = {"gracePeriodSeconds": _GRACE}
        paths = [f"{path_of(namespace)}/pods/{pod['metadata']['name']}" for pod in pods]
        begun = time.monotonic()
        await at_most(_CALLS, [partial(bare.call, "DELETE", path, body) for path in paths])
        async with asyncio.timeout(_PATIENCE):
            while await bare.count("pods", namespace):
                await asyncio.sleep(_LIST_SECONDS)
        return time.monotonic() - begun


def _launch_row(name: str, seen: Cancelled) -> Row:
    slowest = max(seen.launches)
    return Row(
        f"{name}: slowest of {len(seen.launches)} launches meanwhile",
        f"{slowest:.2f} s (median {statistics.median(seen.launches):.2f} s)",
        target=f"≤ {_LAUNCH_TARGET:.0f} s",
        met=slowest <= _LAUNCH_TARGET,
    )


def _cancel_all(
    stub: TrainingServiceStub, number: int, on_start: Callable[[], object] = lambda: None
) -> Cancelled:
    """Start `number` jobs, cancel all at once, and launch new jobs until the cancelled ones have ended.

    `on_start` is called when all `number` jobs run, before they are cancelled.
    """
    ids = {answer.result().job_id for answer in [stub.Train.future(request()) for _ in range(number)]}
    _until(lambda: ids <= _with_status(stub, pb.running), "not all jobs run")
    on_start()
    launches: list[float] = []
    with ThreadPoolExecutor(1) as threads:
        begun = time.monotonic()
        cancels = [stub.CancelTraining.future(pb.CancelTrainingRequest(job_id=each)) for each in ids]
        ended = threads.submit(_until, lambda: not _any_live(stub, ids), "not all have ended")
        while not ended.done() or not launches:
            launches.append(_launch(stub))
            time.sleep(_PAUSE_SECONDS)
        for cancel in cancels:
            cancel.result()
        seconds = ended.result() - begun
    if left := ids - _with_status(stub, pb.cancelled):
        raise RuntimeError(f"{len(left)} jobs have not ended as cancelled")
    return Cancelled(launches, seconds)


def _launch(stub: TrainingServiceStub) -> float:
    """Submit a job, wait until it is launched, and cancel it.

    Return the seconds from Train's answer to the launch.
    """
    job_id = stub.Train(request(EPOCHS="0")).job_id
    begun = time.monotonic()
    asked = pb.GetTrainingStatusRequest(job_id=job_id)
    # The status has ranks as soon as the launch is complete.
    _until(lambda: bool(stub.GetTrainingStatus(asked).ranks), f"job {job_id} is not launched", _LOOK_SECONDS)
    launched = time.monotonic() - begun
    stub.CancelTraining(pb.CancelTrainingRequest(job_id=job_id))
    return launched


def _until(condition: Callable[[], bool], otherwise: str, look: float = _LIST_SECONDS) -> float:
    """Check the condition every `look` seconds until it holds. Return the value of `time.monotonic()` then.

    Raises RuntimeError with the message `otherwise` if the condition does not hold within _PATIENCE seconds.
    """
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise)
        time.sleep(look)
    return time.monotonic()


def _any_live(stub: TrainingServiceStub, ids: set[int]) -> bool:
    """Return whether any of the jobs has not ended."""
    live = [pb.queuing, pb.launch, pb.running]
    page = stub.ListTrainingJobs(pb.ListTrainingJobsRequest(statuses=live, page_size=_LOOKED_AT))
    return any(job.job_id in ids for job in page.jobs)


def _with_status(stub: TrainingServiceStub, status: "pb.TrainingStatus.ValueType") -> set[int]:
    found: set[int] = set()
    token = ""
    while True:
        page = stub.ListTrainingJobs(
            pb.ListTrainingJobsRequest(statuses=[status], page_size=_PAGE, page_token=token)
        )
        found |= {job.job_id for job in page.jobs}
        if not (token := page.next_page_token):
            return found


@contextmanager
def _free_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    yield port


on_processes = _processes
on_cluster = or_left_out(_pods, "cancelling on a cluster")


def measure(quick: bool) -> list[Row]:
    """Measure on processes and on a cluster, or on only one of them if `--on` names it."""
    which = sys.argv[sys.argv.index("--on") + 1] if "--on" in sys.argv else ""
    kinds = {"processes": on_processes, "cluster": on_cluster}
    if which and which not in kinds:
        raise SystemExit(f"--on {which}: use one of {', '.join(kinds)}")
    return [row for kind, run in kinds.items() if which in ("", kind) for row in run(quick)]


if __name__ == "__main__":
    run_alone(measure)
