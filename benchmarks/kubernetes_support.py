"""Shared parts of the Kubernetes benchmarks: a cluster, the service on it, and a bare client.

tests/cluster makes the cluster, in a separate folder, and removes it afterwards. Its README describes several
kinds of clusters. The benchmarks always use the kind named debian: only this one can run without nodes,
simulate nodes, and see this machine's folders. `NoCluster` says why a machine cannot have such a cluster.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tomllib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from kubernetes.aio import client, config

from benchmarks.support import ALGORITHM, DECLARED, Row, Server, make_dataset, request, script, serving
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.backends.kubernetes.plan import KubernetesPlan, plan
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.catalog import FixedCatalog
from job_tracker.domain.group import GroupSpec
from job_tracker.domain.job import Job, JobState
from job_tracker.domain.job_spec import JobSpec
from training_service.job_opening import make_resolver
from training_service.settings import settings_model

CALLS = 32
"""The number of calls to the API server that are in flight at a time. The service uses the same number."""

_ROOT = Path(__file__).parents[1]
_SCRIPT = _ROOT / "tests" / "cluster" / "cluster"
_STATE = "TEST_CLUSTER_STATE"
_STATE_OF_TESTS = "/var/tmp/training-service-cluster"
_NO_CLUSTER_HERE, _NOT_POSSIBLE_HERE = 3, 4
_RECIPE = 'image = "bench:1"\ncommand = ["true"]\nrun_as_user = 10001\n'
_LOOK_SECONDS = 0.02

Resource = Literal["pods", "services"]


class NoCluster(Exception):
    """This machine cannot run the cluster of this benchmark."""


def or_left_out(measure: Callable[[bool], list[Row]], name: str) -> Callable[[bool], list[Row]]:
    """Return a function that measures like `measure`.

    If `measure` raises NoCluster, the function returns a row with the reason instead.
    """

    def measured(quick: bool) -> list[Row]:
        try:
            return measure(quick)
        except NoCluster as error:
            return [Row(f"{name}: left out, because {error}", "")]

    return measured


# --- the cluster --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    kubeconfig: Path

    def hollow(self, nodes: int) -> None:
        """Set the number of simulated nodes."""
        _run("hollow", str(nodes))

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl and return its output."""
        return _run("kubectl", *arguments, stdin=stdin)

    def load_program_image(self, name: str) -> None:
        """Make the small image of tests/cluster, with Python and grpcio, and load it into the node."""
        _run("program-image", name)

    def address_for_pods(self) -> str:
        """Return the address of this machine at which pods reach it."""
        path = "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((self.kubectl("get", "nodes", "-o", path), 9))  # sends nothing
            return str(probe.getsockname()[0])

    def load_images(self) -> None:
        """Build the project's images with a running Docker engine or the engine of tests/cluster. Load them
        into the node.
        """
        environment = _environment()
        subprocess.run(
            [_ROOT / "scripts" / "images", "--load"], check=True, env=environment, stdout=sys.stderr
        )
        # Stop the engine if it was started here. Its images stay for the next run.
        subprocess.run([_SCRIPT.with_name("docker-down")], check=False, env=environment, stdout=sys.stderr)


@contextmanager
def cluster(*, node: bool = False, **variables: str) -> Iterator[Cluster]:
    """Run a fresh control plane, with or without a node, during the block.

    Raises NoCluster if this machine cannot run one.

    `variables` are environment variables of tests/cluster.
    """
    _run("provider")  # raises NoCluster before anything is created
    try:
        _run("down")
        _run("up", *([] if node else ["--no-node"]), **variables)
        yield Cluster(Path(_run("kubeconfig").strip()))
    finally:
        with suppress(NoCluster):
            _run("down")


def _environment(**variables: str) -> dict[str, str]:
    # A separate folder, so that the cluster of the tests stays up.
    folder = os.environ.get(_STATE, _STATE_OF_TESTS).rstrip("/") + "-benchmarks"
    return {**os.environ, "TEST_CLUSTER_PROVIDER": "debian", _STATE: folder, **variables}


def _run(*arguments: str, stdin: str | None = None, **variables: str) -> str:
    done = subprocess.run(
        [_SCRIPT, *arguments],
        capture_output=True,
        text=True,
        env=_environment(**variables),
        check=False,
        **({"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}),
    )
    if done.returncode in (_NO_CLUSTER_HERE, _NOT_POSSIBLE_HERE):
        raise NoCluster(" ".join(done.stderr.replace("cluster: ", "").split()))
    if done.returncode:
        raise RuntimeError(f"cluster {' '.join(arguments)}: status {done.returncode}\n{done.stderr}")
    return str(done.stdout)


# --- the service --------------------------------------------------------------------------------


@contextmanager
def service_on(
    cluster: Cluster,
    data_dir: Path,
    namespace: str,
    *,
    capacity: int,
    recipe: str = _RECIPE,
    flags: Iterable[str] = (),
) -> Iterator[Server]:
    """Run the service on this machine during the block, with its pods in `namespace`.

    `recipe` has the algorithm's settings for Kubernetes, as TOML.
    """
    make_dataset(data_dir)
    config_file = data_dir / "bench.toml"
    config_file.write_text(
        f"[algorithms.{ALGORITHM}]\n{DECLARED}\n[algorithms.{ALGORITHM}.kubernetes]\n{recipe}"
    )
    with serving(
        [
            *(script("training-service"), "serve", "--backend", "kubernetes", "--config", str(config_file)),
            *("--data-dir", str(data_dir), "--address", "127.0.0.1:0", "--capacity", str(capacity)),
            f"--set=kubernetes.kubeconfig={cluster.kubeconfig}",
            f"--set=kubernetes.namespace={namespace}",
            *flags,
        ]
    ) as server:
        yield server


def planned(
    job_id: int,
    instances: int,
    namespace: str,
    *,
    recipe: str = _RECIPE,
    storage: Path = Path("/storage"),
    **parameters: str,
) -> KubernetesPlan:
    """Return the objects that the service would create for a job. Bare clients create them for comparison."""
    common = request(PARALLEL_INSTANCES=str(instances), **parameters).metadata
    trainers = {"master": 1, **({"worker": instances - 1} if instances > 1 else {})}
    spec = JobSpec(
        group=GroupSpec(roles=trainers),
        algorithm=ALGORITHM,
        dataset_id=common.dataset_id,
        dataset_version=common.train_data_version_hash,
        name=common.name,
        model_name=common.output_model_name,
        parameters=dict(common.parameters),
        environment=dict(common.parameters),
        data_uri=f"{storage}/versionedDatasets/{common.dataset_id}/{common.train_data_version_hash}",
        model_root=f"{storage}/models/{common.output_model_name}",
        checkpoint_root=f"{storage}/checkpoints",
    )
    now = datetime.now(UTC)
    job = Job(id=job_id, version=1, spec=spec, state=JobState.LAUNCHING, submitted_at=now, attempt=1)
    settings = settings_model().model_validate(
        {"backend": "kubernetes", "algorithms": {ALGORITHM: {"kubernetes": tomllib.loads(recipe)}}}
    )
    resolved = make_resolver(settings, FixedCatalog(settings.algorithms)).completed(job.spec)
    return plan(replace(job, spec=resolved), KubernetesSettings(namespace=namespace, instance="bench"))


# --- the bare client ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bare:
    """A fast client: it uses the client library's connections, but plain JSON, not the library's classes."""

    api: client.ApiClient

    @classmethod
    @asynccontextmanager
    async def connected(cls, cluster: Cluster) -> AsyncIterator["Bare"]:
        """Connect to the cluster."""
        configuration = client.Configuration()
        await config.load_kube_config(str(cluster.kubeconfig), client_configuration=configuration)
        async with client.ApiClient(configuration) as api:
            yield cls(api)

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, missing: bool = False
    ) -> Any:
        """Make the call, and return the JSON of the answer. Raises RuntimeError if the answer is an error.

        With `missing`, return None if the object does not exist.
        """
        response = await self.api.rest_client.request(
            method,
            f"{self.api.configuration.host}{path}",
            headers={"Accept": "application/json", "Content-Type": "application/json"},
            body=body,
        )
        data = await response.read()
        if response.status == 404 and missing:
            return None
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {response.status}: {data.decode()}")
        return json.loads(data)

    async def create(self, kind: Resource, manifest: Manifest) -> Any:
        """Create the object, and return it as the API server has stored it."""
        return await self.call("POST", f"{path_of(manifest['metadata']['namespace'])}/{kind}", manifest)

    async def count(self, kind: Resource, namespace: str) -> int:
        """Return the number of objects of the kind.

        The API server counts them, and sends only one of them.
        """
        page = await self.call("GET", f"{path_of(namespace)}/{kind}?limit=1")
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))

    async def watch(self, path: str) -> AsyncIterator[Any]:
        """Yield a watch event for each existing object, then one for every change."""
        response = await self.api.rest_client.request(
            "GET", f"{self.api.configuration.host}{path}?watch=true", headers={"Accept": "application/json"}
        )
        rest = b""
        async for piece in response.response.content.iter_any():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield json.loads(line)

    async def until(self, kind: Resource, namespace: str, number: int, seconds: float = 300) -> None:
        """Wait until there are at least this many objects of the kind."""
        async with asyncio.timeout(seconds):
            while await self.count(kind, namespace) < number:
                await asyncio.sleep(_LOOK_SECONDS)

    async def until_there(self, path: str, *, there: bool) -> None:
        """Wait until the object exists; if `there` is false, until it is gone."""
        async with asyncio.timeout(300):
            while (await self.call("GET", path, missing=True) is not None) is not there:
                await asyncio.sleep(0.1)


def new_namespace(cluster: Cluster) -> str:
    """Create a namespace, wait until it accepts pods, and return its name."""
    name = f"bench-{uuid.uuid4().hex[:8]}"

    async def make() -> None:
        async with Bare.connected(cluster) as bare:
            await bare.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
            for needed in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
                await bare.until_there(f"{path_of(name)}/{needed}", there=True)

    asyncio.run(make())
    return name


def remove_namespace(cluster: Cluster, name: str) -> None:
    """Remove the namespace and its objects completely, so that the next round is undisturbed."""

    async def remove() -> None:
        async with Bare.connected(cluster) as bare:
            # Jobs are deleted first, because they would replace their pods. Pods get no grace period.
            await bare.call("DELETE", jobs_path(name), {"propagationPolicy": "Background"})
            await bare.call("DELETE", f"{path_of(name)}/pods", {"gracePeriodSeconds": 0})
            await bare.call("DELETE", path_of(name))
            await bare.until_there(path_of(name), there=False)

    asyncio.run(remove())


def path_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}"


def jobs_path(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


async def at_most(limit: int, calls: Iterable[Callable[[], Awaitable[object]]]) -> None:
    """Make all calls, with at most `limit` of them in flight."""
    left = iter(calls)

    async def worker() -> None:
        for call in left:
            await call()

    await asyncio.gather(*(worker() for _ in range(limit)))
