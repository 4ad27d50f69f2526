"""Capacity that follows the nodes of a cluster: whole groups, pods of others, lost places, and refusals."""

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from job_tracker.backends.kubernetes.quantities import offered, requested
from tests.support import accounts
from tests.support.cluster import Cluster
from tests.support.parameters import declared
from tests.support.patience import PATIENCE
from tests.support.server import Server, refusal
from tests.support.watching import all_run, comes
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient
from training_service.client.errors import InvalidRequest

ROOT = Path(__file__).parents[2]
FITTING = 5
"""The number of instances that fit on the node."""
HOST = "kubernetes.io/hostname"
FOREVER = {"RUN_SECONDS": "forever"}


class Node:
    """The first node of the cluster, and a fifth of its free cpu."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        node = next(
            each
            for each in cluster.get("default", "nodes")["items"]
            if "training-service.test/hollow" not in each["metadata"]["labels"]
        )
        self.name = node["metadata"]["name"]
        self.host = node["metadata"]["labels"][HOST]
        allocatable = offered(node["status"]["allocatable"])["cpu"]
        pods = json.loads(cluster.kubectl("get", "pods", "-A", "-o", "json"))["items"]
        # Pods of earlier tests may be just ending.
        labelled = cluster.kubectl("get", "ns", "-l", "training-service.test/namespace", "-o", "name")
        of_tests = {name.removeprefix("namespace/") for name in labelled.split()}
        running = [
            pod
            for pod in pods
            if pod["metadata"]["namespace"] not in of_tests
            and pod["spec"].get("nodeName") == self.name
            and pod["status"]["phase"] not in ("Succeeded", "Failed")
        ]
        self.free = allocatable - sum(requested(pod).get("cpu", 0) for pod in running)
        self.share = self.free // FITTING

    def pods(self) -> list[Any]:
        """Return the pods of the service."""
        return list(self.cluster.get(self.namespace, "pods", "-l", "training-service/job-id")["items"])

    def take(self, millicores: int) -> str:
        """Let a pod of others take CPU of the node, without the scheduler."""
        name = f"other-{uuid.uuid4().hex[:8]}"
        container = {
            "name": "main",
            "image": "training-service.test/none:1",  # the pod need not run
            "imagePullPolicy": "Never",
            "resources": {"requests": {"cpu": f"{millicores}m"}},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"nodeName": self.name, "containers": [container]},
        }
        self.cluster.apply(self.namespace, pod)
        return name

    def give_back(self, name: str) -> None:
        where = ("-n", self.namespace, "--grace-period=0", "--force")
        self.cluster.kubectl("delete", "pod", name, *where)


def settings(kubeconfig: Path, node: Node, image: str) -> str:
    return f"""
        backend = "kubernetes"
        [jobs]
        stop_grace = 1
        [retry]
        backoff = 0.5
        [kubernetes]
        kubeconfig = {json.dumps(str(kubeconfig))}
        namespace = "{node.namespace}"
        taken_place_grace = 1
        allowed_request_options = ["resources", "node_selector"]
        [kubernetes.flavors.testing]
        node_selector = {{ "{HOST}" = "{node.host}" }}
        [kubernetes.pod]
        limit_cpu = false
        resources = {{ cpu = "{node.share}m" }}
        [algorithms.program]
        {declared()}
        [algorithms.program.kubernetes]
        image = "{image}"
    """


@pytest.fixture
def node(cluster: Cluster, namespace: str) -> Node:
    return Node(cluster, namespace)


@pytest.fixture
def kubeconfig(node: Node, tmp_path: Path) -> Path:
    """The kubeconfig of an account with only the deployed Role."""
    rules = accounts.rules_in("deploy/base/rbac.yaml")
    node.cluster.apply(node.namespace, *accounts.account("service", rules))
    token = accounts.token(node.cluster, node.namespace, "service")
    return accounts.kubeconfig(node.cluster, tmp_path / "kubeconfig", token)


@pytest.fixture
def right_to_nodes(node: Node, kubeconfig: Path) -> Iterator[None]:
    """The account has the right of deploy/optional/followed-nodes."""
    path = ROOT / "deploy/optional/followed-nodes/rbac.yaml"
    role, binding = yaml.safe_load_all(path.read_text())
    for each in (role, binding):
        each["metadata"]["name"] = node.namespace
    binding["roleRef"]["name"] = node.namespace
    binding["subjects"] = [{"kind": "ServiceAccount", "name": "service", "namespace": node.namespace}]
    node.cluster.apply("default", role, binding)
    yield
    node.cluster.kubectl("delete", f"clusterrole/{node.namespace}", f"clusterrolebinding/{node.namespace}")


@pytest.fixture
def service(
    node: Node, kubeconfig: Path, right_to_nodes: None, program_image: str, server: Server
) -> Iterator[Server]:
    text = settings(kubeconfig, node, program_image)
    (server.folder / "config.toml").write_text(text)
    yield server
    log = server.log.read_text()
    assert "cannot " not in re.sub(r"cannot be reached", "", log), log
    assert "Traceback" not in log, log


def submit(client: TrainingClient, instances: int, parameters: dict[str, str], **more: Any) -> int:
    return client.submit("program", "1", "v1", instances=instances, parameters=parameters, **more)


def waits_for(client: TrainingClient, job: int, code: str) -> pb.ExplainTrainingResponse:
    """Wait until the job waits for this reason."""
    while True:
        found = client.why(job)
        if [each.code for each in found.reasons][:1] == [code]:
            return found
        time.sleep(0.1)


def groups_of(pods: list[Any]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for pod in pods:
        groups.setdefault(pod["metadata"]["labels"]["training-service/job-id"], []).append(pod)
    return groups


def is_unschedulable(pod: Any) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(each.get("reason") == "Unschedulable" for each in conditions)


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.1)


def test_groups_start_whole_or_wait_and_all_of_them_end_well(service: Server, node: Node) -> None:
    with service.start() as client:
        jobs = [submit(client, 2, {"RUN_SECONDS": seconds}) for seconds in ("10", "10", "1", "1")]
        assert {each.code for each in waits_for(client, jobs[2], "capacity").reasons} == {"capacity"}
        assert {each.job_id for each in client.why(jobs[2]).holders} <= set(jobs[:2])
        assert {each.code for each in client.why(jobs[3]).reasons} & {"capacity", "order"}
        most = 0
        while not all(client.status(job).status == pb.succeed for job in jobs):
            pods = node.pods()
            assert not any(map(is_unschedulable, pods)), pods
            assert {pod["spec"].get("nodeName", node.name) for pod in pods} <= {node.name}
            most = max(most, len(groups_of(pods)))
            time.sleep(0.2)
        assert 1 <= most <= FITTING // 2
        ended = [client.status(job) for job in jobs]
        assert [(each.status, each.attempt) for each in ended] == [(pb.succeed, 1)] * 4


def test_what_pods_of_others_request_is_not_free_until_they_end(service: Server, node: Node) -> None:
    other = node.take(3 * node.share)
    with service.start() as client:
        jobs = [submit(client, 2, FOREVER) for _ in range(2)]
        comes(client, jobs[0], all_run)
        waits_for(client, jobs[1], "capacity")
        assert len(groups_of(node.pods())) == 1
        node.give_back(other)
        comes(client, jobs[1], all_run)
        # Others request more than is left: running jobs continue, and no new job starts.
        again = node.take(3 * node.share)
        waiting = submit(client, 2, {})
        waits_for(client, waiting, "capacity")
        assert all(all_run(client.status(job)) for job in jobs)
        client.cancel(jobs[0])
        client.cancel(jobs[1])
        node.give_back(again)
        assert client.wait(waiting, timeout=PATIENCE).status == pb.succeed


def test_a_job_whose_place_was_taken_waits_again_and_loses_no_attempt(service: Server, node: Node) -> None:
    cluster = node.cluster
    with service.start() as client:
        with cluster.stopped("scheduler"):
            job = submit(client, 4, {})
            until(lambda: len(node.pods()) == 4)
            other = node.take(4 * node.share)
        waits_for(client, job, "lost_capacity")
        seen = client.status(job)
        assert [move.diagnosis.category for move in seen.moves if move.HasField("diagnosis")] == [
            "place_taken"
        ]
        node.give_back(other)
        ended = client.wait(job, timeout=PATIENCE)
        assert (ended.status, ended.attempt) == (pb.succeed, 2)


def test_a_job_that_fits_on_no_node_is_refused_with_the_largest_that_would(
    service: Server, node: Node
) -> None:
    other = node.take(2 * node.share)  # the pod may end, so it counts only for jobs that would start now
    with service.start() as client:
        running = submit(client, 1, {})
        assert client.wait(running, timeout=PATIENCE).status == pb.succeed
        with pytest.raises(InvalidRequest, match=r"The largest that fits .* is [5-9] trainers"):
            submit(client, 30, {})
        with pytest.raises(InvalidRequest, match="not even one trainer"):
            submit(client, 1, {}, pod_options=pb.PodOptions(resources={"nvidia.com/gpu": "1000"}))
        with pytest.raises(InvalidRequest, match="not even one trainer"):
            submit(client, 1, {}, pod_options=pb.PodOptions(node_selector={"disk": "none"}))
        large = submit(client, FITTING, {})
        waits_for(client, large, "lost_capacity")
        node.give_back(other)
        assert client.wait(large, timeout=PATIENCE).status == pb.succeed


def test_nothing_starts_on_a_cordoned_node_and_what_runs_there_runs_on(service: Server, node: Node) -> None:
    with service.start() as client:
        running = submit(client, 1, FOREVER)
        comes(client, running, all_run)
        node.cluster.kubectl("cordon", node.name)
        try:
            waiting = submit(client, 1, {})
            waits_for(client, waiting, "lost_capacity")
            assert all_run(client.status(running))
        finally:
            node.cluster.kubectl("uncordon", node.name)
        assert client.wait(waiting, timeout=PATIENCE).status == pb.succeed


def test_without_the_right_to_read_nodes_the_service_says_what_it_needs(
    node: Node, kubeconfig: Path, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(settings(kubeconfig, node, "image:1"))
    where = ["--config", str(file), "--data-dir", str(tmp_path), "--address", "127.0.0.1:0"]
    line = refusal("serve", *where)
    assert line.startswith(
        "kubernetes.flavors: the capacity of testing follows the nodes, but the service may"
    )
    assert "deploy/optional/followed-nodes" in line
