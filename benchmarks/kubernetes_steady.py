"""The steady cost of jobs that run, in requests to the API server and in CPU time of the service: with many
jobs and with few.

The pods run for ever on simulated nodes. Requests are counted by the service, in its metric
`training_service_kubernetes_requests_total` (watches, lists, writes, logs), over a minute in which no job
begins or ends.

Simulated nodes have no logs, so following a master's log fails repeatedly. The measurement starts once the
retries have slowed down to one a minute. Requests for logs have their own row, because there are fewer of
them with real nodes: one whenever a master has printed nothing for five minutes.
"""

import re
import socket
import time
import urllib.request
from collections import Counter
from typing import NamedTuple

import psutil

from benchmarks.kubernetes_support import cluster, new_namespace, or_left_out, service_on
from benchmarks.support import Row, request, run_alone, workspace
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

_PODS_PER_NODE = 100
_LOG = "log"
_COUNTED = re.compile(
    r'^training_service_kubernetes_requests_total\{code="[^"]+",request="([^"]+)"\} (\S+)$', re.MULTILINE
)
_CPU_TARGET = 0.05


class Cost(NamedTuple):
    """The costs per second: API requests (except for logs), API requests for logs, and CPU seconds."""

    requests: float
    log_requests: float
    cpu: float


def _measure(quick: bool) -> list[Row]:
    few, many = (20, 100) if quick else (100, 1_000)
    settle, seconds = (40.0, 20.0) if quick else (75.0, 60.0)
    port = _free_port()
    with cluster() as fresh, workspace() as folder:
        namespace = new_namespace(fresh)
        fresh.hollow(-(-many // _PODS_PER_NODE))
        flags = [f"--set=metrics.port={port}"]
        with (
            service_on(fresh, folder, namespace, capacity=many, flags=flags) as server,
            server.stub() as stub,
        ):

            def cost_with(more: int, running: int) -> Cost:
                for answer in [stub.Train.future(request()) for _ in range(more)]:
                    answer.result()
                _until_running(stub, running)
                time.sleep(settle)
                return _cost(psutil.Process(server.pid), port, seconds)

            with_few = cost_with(few, few)
            with_many = cost_with(many - few, many)
    name = f"pods-steady: {many:,} running jobs against {few}"
    grown = with_many.requests - with_few.requests
    return [
        Row(
            f"{name}: API requests/s, without logs",
            f"{with_many.requests:.2f}/s",
            f"{with_few.requests:.2f}/s",
            target="+ 0.1/s at most",
            met=grown <= 0.1,
        ),
        Row(f"{name}: log requests/s", f"{with_many.log_requests:.2f}/s", f"{with_few.log_requests:.2f}/s"),
        Row(
            f"{name}: CPU",
            f"{with_many.cpu:.2%} of a core",
            f"{with_few.cpu:.2%}",
            target=f"< {_CPU_TARGET:.0%}",
            met=with_many.cpu < _CPU_TARGET,
        ),
    ]


measure = or_left_out(_measure, "pods-steady")


def _until_running(stub: TrainingServiceStub, number: int) -> None:
    page = pb.ListTrainingJobsRequest(statuses=[pb.running], page_size=1000)
    deadline = time.monotonic() + 600
    while len(stub.ListTrainingJobs(page).jobs) < number:
        failed = stub.ListTrainingJobs(pb.ListTrainingJobsRequest(statuses=[pb.failure], page_size=1)).jobs
        if failed or time.monotonic() > deadline:
            raise RuntimeError(f"not all jobs run; {failed}")
        time.sleep(1)


def _cost(process: psutil.Process, port: int, seconds: float) -> Cost:
    requests, times, begun = api_requests(port), process.cpu_times(), time.perf_counter()
    time.sleep(seconds)
    requests_after, times_after = api_requests(port), process.cpu_times()
    passed = time.perf_counter() - begun
    logs = requests_after.get(_LOG, 0) - requests.get(_LOG, 0)
    cpu = times_after.user + times_after.system - times.user - times.system
    all_requests = sum(requests_after.values()) - sum(requests.values())
    return Cost((all_requests - logs) / passed, logs / passed, cpu / passed)


def api_requests(port: int) -> Counter[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        counted = Counter[str]()
        for kind, number in _COUNTED.findall(answer.read().decode()):  # one line for each status code
            counted[kind] += round(float(number))
        return counted


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    run_alone(measure)
