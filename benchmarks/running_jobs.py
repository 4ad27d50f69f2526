"""The memory that running jobs cost the service, and the memory that remains when they have ended.

A thousand jobs with one pod each run on an in-memory API server, which is a separate process. It speaks TLS,
fills the fields of a pod that a cluster fills, runs pods as soon as they are created, and keeps each followed
log open as a kubelet does. Then all jobs are cancelled at once, and the memory is read again a minute later.
`--on cluster` uses a real API server and simulated nodes, whose pods have no logs.
"""

import asyncio
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from aiohttp import web

from benchmarks.idle import each_of
from benchmarks.kubernetes_support import Cluster, cluster, new_namespace, or_left_out, service_on
from benchmarks.support import Row, Server, request, run_alone, workspace
from tests.support.fake_cluster import FakeCluster
from training_service._generated import training_service_pb2 as pb

_TARGET = 0.05
_LEFT_TARGET = 20.0
_PATIENCE = 600.0
_PODS_PER_NODE = 100
_SELF_SIGNED = (
    "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
)
_ROUTE = "/api/v1/namespaces/{namespace}/{kind:[^/]+}{a:/?}{name:[^/]*}{b:/?}{below:.*}"


def _on_memory(quick: bool) -> list[Row]:
    with (
        workspace() as folder,
        _api_server(folder) as fake,
        service_on(fake, folder, "default", capacity=_number(quick)) as server,
    ):
        return _measured("running jobs", server, _number(quick), 10.0 if quick else 60.0)


def _on_cluster(quick: bool) -> list[Row]:
    jobs = _number(quick)
    with cluster() as fresh, workspace() as folder:
        fresh.hollow(-(-jobs // _PODS_PER_NODE))
        with service_on(fresh, folder, new_namespace(fresh), capacity=jobs) as server:
            return _measured("running jobs on a cluster", server, jobs, 10.0 if quick else 60.0)


def _number(quick: bool) -> int:
    return 200 if quick else 1_000


def _measured(name: str, server: Server, jobs: int, rest: float) -> list[Row]:
    with server.stub() as stub:
        warm = stub.Train(request()).job_id  # a first job, so that one-time costs do not count
        _until(lambda: _count(stub, pb.running) == 1)
        stub.CancelTraining(pb.CancelTrainingRequest(job_id=warm))
        _until(lambda: _count(stub, pb.cancelled) == 1)
        time.sleep(5)
        idle = _megabytes(server)
        ids = [answer.job_id for answer in each_of(stub.Train, [request()] * jobs)]
        _until(lambda: _count(stub, pb.running) == jobs)
        time.sleep(rest)
        running = _megabytes(server)
        each_of(stub.CancelTraining, [pb.CancelTrainingRequest(job_id=job_id) for job_id in ids])
        _until(lambda: _count(stub, pb.cancelled) == jobs + 1)
        ended = _megabytes(server)
        time.sleep(rest)
        left = _megabytes(server)
    each = (running - idle) / jobs
    name = f"{jobs:,} {name}"
    return [
        Row(f"{name}: memory before", f"{idle:.0f} MB"),
        Row(
            f"{name}: memory while they run",
            f"{running:.0f} MB, {each:.3f} MB a job",
            target=f"≤ {_TARGET} MB a job",
            met=each <= _TARGET,
        ),
        Row(f"{name}: memory when all were cancelled", f"{ended:.0f} MB"),
        Row(
            f"{name}: … {rest:.0f} s later",
            f"{left:.0f} MB",
            target=f"≤ {_LEFT_TARGET:.0f} MB more than before",
            met=left - idle <= _LEFT_TARGET,
        ),
    ]


def _megabytes(server: Server) -> float:
    return float(psutil.Process(server.pid).memory_info().rss / 1e6)


def _count(stub: Any, status: "pb.TrainingStatus.ValueType") -> int:
    total, token = 0, ""
    while True:
        wanted = pb.ListTrainingJobsRequest(statuses=[status], page_size=100, page_token=token)
        page = stub.ListTrainingJobs(wanted)
        total += len(page.jobs)
        if not (token := page.next_page_token):
            return total


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(1)


# --- the API server ---------------------------------------------------------------------------------


@contextmanager
def _api_server(folder: Path) -> Iterator[Cluster]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.running_jobs", "--api-server", str(folder)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield Cluster(folder / "kubeconfig")
    finally:
        process.kill()
        process.wait()


class _Cluster(FakeCluster):
    """A fake API server. Pods run as soon as they are created. A pod's log ends when the pod is deleted."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        name, below = request.match_info["name"], request.match_info["below"]
        if below == "log" and request.query.get("follow"):
            response = web.StreamResponse()
            with suppress(ConnectionError):  # the reader has closed the connection
                await response.prepare(request)
                await response.write(b"2026-11-21T12:00:00.000000001Z a line of the program\n")
                while ("pods", name) in self._objects:
                    await asyncio.sleep(1)
            return response
        answer = await super().handle(request)
        if (
            request.method == "POST"
            and request.match_info["kind"] == "pods"
            and not request.query.get("dryRun")
        ):
            made = json.loads(answer.body)["metadata"]["name"]  # type: ignore[attr-defined]
            self._fill(made)
            self.run(made)
        return answer

    def _fill(self, name: str) -> None:
        made = self._objects["pods", name]
        made["metadata"]["managedFields"] = [
            {"manager": who, "operation": "Update", "fieldsV1": {f"f:{number}": {} for number in range(60)}}
            for who in ("training-service", "kubelet")
        ]
        made["spec"] |= {
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "tolerationSeconds": 300}
                for key in ("not-ready", "unreachable")
            ],
            "nodeName": "node-1",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "preemptionPolicy": "PreemptLowerPriority",
        }

    def _set_state(self, name: str, phase: str, state: dict[str, Any]) -> None:
        super()._set_state(name, phase, state)
        found = self._objects["pods", name]
        kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        at = "2026-11-21T12:00:00Z"
        found["status"] |= {
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": at} for kind in kinds],
            "hostIP": "10.0.0.1",
            "podIP": "10.1.0.1",
            "podIPs": [{"ip": "10.1.0.1"}],
            "startTime": at,
            "qosClass": "Burstable",
        }
        self._publish("MODIFIED", "pods", found)


async def _serve(folder: Path) -> None:
    certificate, key = folder / "api.crt", folder / "api.key"
    files = ["-out", str(certificate), "-keyout", str(key)]
    subprocess.run(["openssl", *_SELF_SIGNED.split(), *files], check=True, capture_output=True)
    made = _Cluster(folder / "kubeconfig")
    app = web.Application()
    app.router.add_route("*", _ROUTE, made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context, backlog=2048).start()
    host, port = runner.addresses[0][:2]
    server = {"server": f"https://{host}:{port}", "certificate-authority": str(certificate)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": server}],
        "users": [{"name": "x", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    made.kubeconfig.write_text(json.dumps(config))
    print("serves", flush=True)
    await asyncio.Event().wait()


on_cluster = or_left_out(_on_cluster, "running jobs on a cluster")


def measure(quick: bool) -> list[Row]:
    """Measure on the in-memory API server, or with `--on cluster` on a cluster."""
    return on_cluster(quick) if "--on" in sys.argv else _on_memory(quick)


if __name__ == "__main__":
    if "--api-server" in sys.argv:
        asyncio.run(_serve(Path(sys.argv[-1])))
    else:
        run_alone(measure)
