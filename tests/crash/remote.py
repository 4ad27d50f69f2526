"""The world of a service on a cluster, with pods and Redis."""

import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from job_tracker.backends.kubernetes.options import CONTAINER
from job_tracker.backends.shared.labels import ATTEMPT, JOB_ID
from tests.crash.scenario import CAPACITY, EVICTED, JOBS, RANK_PARAMETERS, RUN, PlannedJob, write_user_folder
from tests.crash.stored import problems_in_redis
from tests.support.cluster import SCRIPT, Cluster, address_for_pods
from tests.support.cluster_fixtures import wait_for_account
from tests.support.parameters import declared
from tests.support.patience import PATIENCE
from tests.support.place import Place
from tests.support.ports import free_port
from tests.support.redis_server import ANSWER_SECONDS, RedisServer

# The same as rank.sh, but without the records: here the API server's watch is the witness.
_RANK = """
import os, signal, time
print(f"rank {os.environ['RANK']} of job {os.environ['JOB_ID']}")
print('::progress:: {"step": 1, "total_steps": 2}', flush=True)
match os.environ.get("DO"):
    case "hold":
        time.sleep(1e6)
    case "hold once" if os.environ["JOB_ATTEMPT"] == "1":
        time.sleep(1e6)
    case "die once" if os.environ["JOB_ATTEMPT"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
os._exit(int(os.environ.get("EXIT_CODE", "0")))
"""


class RemoteWorld:
    """A separate namespace, and a new store for each run. See World."""

    wraps: Sequence[str] = ("redis", "kubernetes")
    jobs: Sequence[PlannedJob] = (EVICTED, *JOBS)
    decides = True

    def __init__(self, cluster: Cluster, redis: RedisServer, image: str, folder: Path) -> None:
        self.folder = folder
        self._cluster = cluster
        self._redis = redis
        self._image = image
        self._prefix = ""
        self._port = free_port()
        self._namespace = f"crash-{folder.name}-{uuid.uuid4().hex[:8]}"
        self._watch: PodWatch | None = None
        metadata = {"name": self._namespace}
        cluster.apply("default", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        wait_for_account(cluster, self._namespace)

    def make(self) -> None:
        self._forget()
        shutil.rmtree(self.folder, ignore_errors=True)
        data = self.folder / "data"
        version = data / "storage" / "versionedDatasets" / "1" / "v1"
        version.mkdir(parents=True)
        for name in ("examples.csv", "labels.csv"):
            (version / name).touch()
        self._prefix = f"crash-{uuid.uuid4().hex}"
        write_user_folder(self.folder, {RUN: "#!/bin/sh\nexec python3 rank.py\n", "rank.py": _RANK})
        (self.folder / "config.toml").write_text(
            f"""
            backend = "kubernetes"
            [storage]
            data_dir = {json.dumps(str(data))}
            [server]
            insecure = true  # for the address that pods reach
            [programs]
            enabled = true
            [reports]
            listen = "0.0.0.0:{self._port}"
            address = "{address_for_pods(self._cluster)}:{self._port}"
            [store]
            url = "{self._redis.url}"
            prefix = "{self._prefix}"
            lease_seconds = 1
            answer_seconds = {ANSWER_SECONDS}
            [scheduling]
            capacity = {CAPACITY}
            overtake_limit = 0
            [jobs]
            stop_grace = 2
            [retry]
            backoff = 0.05
            [kubernetes]
            kubeconfig = {json.dumps(str(self._cluster.kubeconfig))}
            namespace = "{self._namespace}"
            program_image = "{self._image}"
            [algorithms.witness]
            {declared(RANK_PARAMETERS)}
            [algorithms.witness.kubernetes]
            image = "{self._image}"
            command = ["python3", "-c", {json.dumps(_RANK)}]
            # With this, the rank is not process 1, which ignores signals without a handler.
            pod_template = {{ spec = {{ shareProcessNamespace = true }} }}
            """
        )
        self._watch = PodWatch(self._namespace, self.folder / "pods.json")

    def evict(self, job_id: int) -> None:
        """See World."""
        Place(self._cluster, self._namespace).evict(f"witness-{job_id}-1-worker")

    def is_settled(self) -> bool:
        """See World. Logs that a fault has left on this machine wait for a service's next sweep."""
        return not any(file.is_file() for file in (self.folder / "data" / "logs").rglob("*"))

    def problems(self) -> Iterator[str]:
        left = self._cluster.kubectl("get", "pods,services", "-n", self._namespace, "-o", "name").split()
        yield from (f"left behind: {name}" for name in left)
        assert self._watch is not None
        yield from self._watch.problems()
        yield from problems_in_redis(self._redis, self._prefix)
        for file in (self.folder / "data").rglob("*"):
            if "programs" in file.parts:
                continue  # uploaded files are kept for a while
            if file.is_file() and file.suffix not in (".csv", ".gz", ".log", ".id"):
                yield f"left behind: {file.relative_to(self.folder)}"

    def close(self) -> None:
        """See World. Deletes the pods without a grace period."""
        self._forget()
        self._cluster.kubectl("delete", "namespace", self._namespace, "--wait=false")

    def _forget(self) -> None:
        if self._watch is not None:
            self._watch.end()
        if self._cluster.kubectl("get", "pods,services", "-n", self._namespace, "-o", "name"):
            at_once = ("--all", "--grace-period=0", "--force")
            self._cluster.kubectl("delete", "pods", "-n", self._namespace, *at_once)
            self._cluster.kubectl("delete", "services", "-n", self._namespace, "--all")


class PodWatch:
    """All events of the pods of a namespace. kubectl writes them to a file."""

    def __init__(self, namespace: str, file: Path) -> None:
        self._file = file
        command = [str(SCRIPT), "kubectl", "get", "pods", "-n", namespace, "-o", "json"]
        with file.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "--watch", "--output-watch-events"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def end(self) -> None:
        """Stop watching."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()

    def problems(self) -> Iterator[str]:
        """Yield violations: pods that ran twice, or at the same time as pods of another attempt."""
        if left := self.settled():
            yield f"never reported as deleted: {left}"
        if self._process.poll() is not None:
            yield "the watch of the pods has ended by itself"
        started: dict[str, set[str]] = {}
        living: dict[str, tuple[str, str]] = {}
        for kind, pod in self.events():
            metadata, labels = pod["metadata"], pod["metadata"]["labels"]
            for container in pod["status"].get("containerStatuses", ()):
                if container["name"] == CONTAINER and {"running", "terminated"} & container["state"].keys():
                    started.setdefault(metadata["name"], set()).add(metadata["uid"])
                if container["restartCount"]:
                    yield f"{metadata['name']} was restarted"
            if kind == "DELETED":
                living.pop(metadata["uid"], None)
                continue
            job, attempt = living[metadata["uid"]] = labels[JOB_ID], labels[ATTEMPT]
            if any(other == job and another != attempt for other, another in living.values()):
                yield f"pods of two attempts of job {job} existed at once"
        for name, uids in started.items():
            if len(uids) > 1:
                yield f"{name} ran {len(uids)} times"

    def settled(self) -> set[str]:
        """Wait until the last events have arrived. Return the pods that are not reported as deleted."""
        deadline = time.monotonic() + PATIENCE
        while (left := self._living()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def _living(self) -> set[str]:
        living = {}
        for kind, pod in self.events():
            living[pod["metadata"]["uid"]] = pod["metadata"]["name"] if kind != "DELETED" else ""
        return {name for name in living.values() if name}

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the kind of each event so far, such as DELETED, and the pod."""
        text, position, decoder = self._file.read_text().strip(), 0, json.JSONDecoder()
        while position < len(text):
            try:
                event, position = decoder.raw_decode(text, position)
            except ValueError:
                return  # the end of the line is still being written
            yield event["type"], event["object"]
            position += len(text[position:]) - len(text[position:].lstrip())
