"""The world of a cluster: pods, two services, and a Redis server outside.

The pods share a folder with this machine, so the cluster's node must be this machine
(`tests/cluster/cluster provider` prints debian).
"""

import json
import random
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from job_tracker.backends.kubernetes.options import CONTAINER
from job_tracker.backends.shared.labels import ATTEMPT, JOB_ID
from tests.chaos import processes
from tests.chaos.faults import Disturbances, Fault
from tests.chaos.outages import LEASE_SECONDS, PREFIX, Outages
from tests.chaos.processes import MARK
from tests.chaos.service import Service
from tests.chaos.victims import Victims
from tests.crash.stored import problems_in_redis
from tests.support.cluster import Cluster, CommandFailed
from tests.support.cluster_fixtures import wait_for_account
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer

PROVIDER = "debian"
_REPLICAS = 2
_RANK = Path(__file__).with_name("rank.py")
_API_SERVER = "apiserver"
_LONGEST_AWAY = 5.0


class ClusterWorld:
    """See World. `spares_api_server`: no fault hits the API server, because others use it, too."""

    has_process_groups = False

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        run: str,
        capacity: int,
        redis: RedisServer,
        *,
        spares_api_server: bool,
    ) -> None:
        self._cluster = cluster
        self._image = cluster.load_program_image()
        self._shared = folder / "shared"
        self.audit = self._shared / "audit"
        self.secret = f"secret of {run}"
        self.peeks: Sequence[str] = ()
        self.disturbances = Disturbances()
        self.victims = Victims(run, have_supervisors=False)
        self.foreseen: Collection[str] = ("StoreUnavailable", "BackendUnavailable")
        self.services: Sequence[Service] = [
            Service(f"replica-{number}", folder, f"127.0.0.1:{free_port()}") for number in range(_REPLICAS)
        ]
        self._folder = folder
        self._run = run
        self._capacity = capacity
        self._redis = redis
        self._namespace = f"chaos-{run[:8]}"
        self._spares_api_server = spares_api_server
        self._outages = Outages(self.services, redis, self.disturbances)

    def open(self) -> None:
        version = self._shared / "storage" / "versionedDatasets" / "1" / "v1"
        written = [self._shared / "storage" / name for name in ("models", "checkpoints")]
        for place in (self.audit, version, *written):
            place.mkdir(parents=True)
        for place in (self.audit, *written):
            place.chmod(0o777)  # ranks and the service run as different users
        for name in ("examples.csv", "labels.csv"):
            (version / name).touch()
        (self._folder / "config.toml").write_text(self._config())
        metadata = {"name": self._namespace}
        self._cluster.apply("default", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        wait_for_account(self._cluster, self._namespace)
        self._outages.begin()

    def faults(self) -> Sequence[Fault]:
        of_objects = (
            Fault("delete a pod", lambda dice: self._delete_pod(dice, is_forced=False), 4),
            Fault(
                "delete a master", lambda dice: self._delete_pod(dice, is_forced=False, only_masters=True), 4
            ),
            Fault("delete a pod by force", lambda dice: self._delete_pod(dice, is_forced=True), 3),
            Fault("delete a Service", self._delete_service, 3),
        )
        of_api_server = (
            Fault("freeze the API server", self._freeze_api_server, 2),
            Fault("stop the API server", lambda dice: self._restart_api_server(dice, self._cluster.stop), 1),
            Fault("kill the API server", lambda dice: self._restart_api_server(dice, self._cluster.kill), 2),
        )
        of_cluster = of_objects + (() if self._spares_api_server else of_api_server)
        return (*self._outages.faults(), *of_cluster)

    def heal(self) -> None:
        self._cluster.heal()
        self._outages.heal()

    def is_settled(self) -> bool:
        return not self._objects()

    def problems(self) -> Iterator[str]:
        yield from (f"left behind: {name}" for name in self._objects())
        for found in processes.marked(self._run):
            yield f"still runs: {found.pid}, a process of job {found.job} attempt {found.attempt}"
        yield from problems_in_redis(self._redis, PREFIX)

    def close(self) -> None:
        self._outages.close(self._clean_up)

    def _clean_up(self) -> None:
        self._cluster.heal()
        at_once = ("--all", "--grace-period=0", "--force", "--wait=false")
        self._kubectl("delete", "pods", *at_once)
        self._cluster.kubectl("delete", "namespace", self._namespace, "--ignore-not-found", "--wait=false")
        processes.kill_all(self._run, self._folder)

    def _kubectl(self, *arguments: str) -> str:
        return self._cluster.kubectl(*arguments, "-n", self._namespace)

    def _objects(self) -> list[str]:
        return self._kubectl("get", "pods,services", "-o", "name").split()

    def _config(self) -> str:
        shared = str(self._shared)
        pod = {
            "spec": {
                "volumes": [{"name": "shared", "hostPath": {"path": shared}}],
                "containers": [
                    {"name": CONTAINER, "volumeMounts": [{"name": "shared", "mountPath": shared}]},
                ],
                # With this, the rank is not process 1, which ignores signals without a handler.
                "shareProcessNamespace": True,
            }
        }
        recipe = {
            "image": self._image,
            "command": ["python3", "-c", _RANK.read_text()],
            "pod_template": pod,
        }
        parameters = dict.fromkeys(("DO", "SECONDS", "EXIT_CODE", "STUBBORN"), "{}")
        return f"""
            backend = "kubernetes"
            [storage]
            data_dir = {json.dumps(str(self._folder / "data"))}
            uri = {json.dumps(f"{shared}/storage")}
            [store]
            url = "{self._redis.url}"
            prefix = "{PREFIX}"
            lease_seconds = {LEASE_SECONDS}
            answer_seconds = 1
            [scheduling]
            capacity = {self._capacity}
            [jobs]
            stop_grace = 1
            finish_grace = 5
            [retry]
            max_attempts = 30
            backoff = 0.05
            max_backoff = 1
            [kubernetes]
            kubeconfig = {json.dumps(str(self._cluster.kubeconfig))}
            namespace = "{self._namespace}"
            [algorithms.honest]
            max_instances = 3
            parameters = {_toml(parameters)}
            environment = {_toml({MARK: json.dumps(self._run), "AUDIT": json.dumps(str(self.audit))})}
            kubernetes = {_inline(recipe)}
            """

    def _delete_pod(self, dice: random.Random, *, is_forced: bool, only_masters: bool = False) -> bool:
        pods = self._items("pods")
        if only_masters:
            pods = [pod for pod in pods if pod["metadata"]["name"].endswith("-master")]
        if not pods:
            return False
        labels = (pod := dice.choice(pods))["metadata"]["labels"]
        job, attempt = int(labels[JOB_ID]), int(labels[ATTEMPT])
        self.victims.count(job, attempt)
        self.victims.deleted.add((job, attempt))
        if is_forced:
            self.victims.forced.add((job, attempt))
        how = ("--grace-period=0", "--force") if is_forced else ()
        return self._delete("pod", pod["metadata"]["name"], *how)

    def _delete_service(self, dice: random.Random) -> bool:
        services = self._items("services")
        if not services:
            return False
        metadata = dice.choice(services)["metadata"]
        if JOB_ID in metadata["labels"]:
            self.victims.count(int(metadata["labels"][JOB_ID]), int(metadata["labels"][ATTEMPT]))
        return self._delete("service", metadata["name"])

    def _delete(self, kind: str, name: str, *how: str) -> bool:
        try:
            self._kubectl("delete", kind, name, "--ignore-not-found", "--wait=false", *how)
        except CommandFailed:  # the API server is unreachable
            return False
        return True

    def _items(self, kind: str) -> list[dict[str, Any]]:
        try:
            items = self._cluster.get(self._namespace, kind, "--request-timeout=5s")["items"]
        except CommandFailed:  # the API server is unreachable
            return []
        return sorted(items, key=lambda item: str(item["metadata"]["name"]))

    def _freeze_api_server(self, dice: random.Random) -> bool:
        with self.disturbances.during():
            self._cluster.pause(_API_SERVER)
            try:
                time.sleep(dice.uniform(0.2, _LONGEST_AWAY))
            finally:
                self._cluster.resume(_API_SERVER)
        return True

    def _restart_api_server(self, dice: random.Random, end: Any) -> bool:
        with self.disturbances.during():
            end(_API_SERVER)
            time.sleep(dice.uniform(0, _LONGEST_AWAY))
            self._cluster.start(_API_SERVER)
        return True


def _inline(value: Any) -> str:
    """Convert a value to TOML on one line: JSON, except for tables."""
    if isinstance(value, dict):
        return _toml({key: _inline(each) for key, each in value.items()})
    if isinstance(value, list):
        return f"[{', '.join(_inline(each) for each in value)}]"
    return json.dumps(value)


def _toml(table: dict[str, str]) -> str:
    return f"{{ {', '.join(f'{key} = {value}' for key, value in table.items())} }}"
