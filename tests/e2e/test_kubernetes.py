"""The service as a process with groups on a cluster: names, ranks, logs, kills, queues and refusals."""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.support import accounts
from tests.support.cluster import Cluster
from tests.support.parameters import declared
from tests.support.patience import PATIENCE
from tests.support.server import Server, refusal
from tests.support.watching import all_run, comes, printed
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient
from training_service.client.errors import InvalidRequest

RBAC = Path(__file__).parents[2] / "deploy/base/rbac.yaml"
FOREVER = {"RUN_SECONDS": "forever", "PRINT": "up"}
GROUP = ["pod/program-1-1-worker", "pod/program-1-2-worker", "pod/program-1-master"]
CAPACITY = 4


class Place:
    """The namespace, as kubectl displays it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def names(self) -> list[str]:
        """Return the names of the pods and Services."""
        listed = self.cluster.kubectl("get", "pods,services", "-n", self.namespace, "-o", "name")
        return sorted(listed.split())

    def uids(self) -> dict[str, str]:
        pods = self.cluster.get(self.namespace, "pods")["items"]
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


@pytest.fixture
def place(cluster: Cluster, namespace: str) -> Place:
    return Place(cluster, namespace)


def settings(kubeconfig: Path, namespace: str, image: str = "image:1") -> str:
    return f"""
        backend = "kubernetes"
        [scheduling]
        capacity = {CAPACITY}
        [jobs]
        stop_grace = 1
        [kubernetes]
        kubeconfig = {json.dumps(str(kubeconfig))}
        namespace = "{namespace}"
        allowed_request_options = ["resources", "priority_class"]
        [algorithms.program]
        {declared()}
        [algorithms.program.kubernetes]
        image = "{image}"
        pod_template = {{ spec = {{ shareProcessNamespace = true }} }}
    """


@pytest.fixture
def service(place: Place, program_image: str, tmp_path: Path, server: Server) -> Iterator[Server]:
    """The service with the deployed rights, not started yet. `server` ends all jobs afterwards."""
    [role] = [each for each in yaml.safe_load_all(RBAC.read_text()) if each["kind"] == "Role"]
    place.cluster.apply(place.namespace, *accounts.account("service", role["rules"]))
    token = accounts.token(place.cluster, place.namespace, "service")
    kubeconfig = accounts.kubeconfig(place.cluster, tmp_path / "kubeconfig", token)
    text = settings(kubeconfig, place.namespace, program_image)
    (server.folder / "config.toml").write_text(text)
    yield server
    log = server.log.read_text()
    assert "cannot " not in log, log  # for example: cannot list resource "pods"
    assert "Traceback" not in log, log


def submit(
    client: TrainingClient,
    parameters: Mapping[str, str],
    *,
    instances: int = 1,
    options: pb.PodOptions | None = None,
) -> int:
    return client.submit(
        "program", "1", "v1", instances=instances, parameters=parameters, pod_options=options
    )


def test_a_job_with_three_instances_has_the_documented_names_ranks_and_logs(
    service: Server, place: Place
) -> None:
    with service.start() as client:
        job = submit(client, {"RUN_SECONDS": "forever", "PRINT": "hello"}, instances=3)
        seen = comes(client, job, all_run)
        assert place.names() == [*GROUP, "service/program-1-master-service"]
        assert [(rank.rank, rank.role) for rank in seen.ranks] == [
            (0, "master"),
            (1, "worker"),
            (2, "worker"),
        ]
        for rank in range(3):
            assert next(iter(client.logs(job, rank=rank, follow=True))).text == "hello\n"
        client.cancel(job)
        ended = client.wait(job, timeout=PATIENCE)
        assert (ended.status, ended.attempt) == (pb.cancelled, 1)
        assert [rank.phase for rank in ended.ranks] == [pb.RANK_PHASE_STOPPED] * 3
        assert [printed(client, job, rank) for rank in range(3)] == ["hello\n"] * 3
    assert place.names() == []


def test_a_restarted_service_adopts_its_group(service: Server, place: Place) -> None:
    with service.start() as client:
        job = submit(client, FOREVER, instances=3)
        comes(client, job, all_run)
    before = place.uids()
    assert service.end(signal.SIGKILL) == -signal.SIGKILL
    with service.start() as client:
        assert all_run(client.status(job))
        assert next(iter(client.logs(job, rank=1, follow=True))).text == "up\n"
        assert place.uids() == before
        client.cancel(job)
        assert client.wait(job, timeout=PATIENCE).status == pb.cancelled
        assert client.status(job).attempt == 1
    assert place.names() == []


def test_a_group_that_loses_a_pod_is_relaunched_under_new_names(service: Server, place: Place) -> None:
    again = ["pod/program-1-r1-1-worker", "pod/program-1-r1-2-worker", "pod/program-1-r1-master"]
    at_once = ("--grace-period=0", "--force")
    with service.start("-s", "retry.backoff=1") as client:
        job = submit(client, FOREVER, instances=3)
        comes(client, job, all_run)
        assert next(iter(client.logs(job, follow=True))).text == "up\n"  # a rank runs before it has printed
        place.cluster.kubectl("delete", "pod", "-n", place.namespace, "program-1-2-worker", *at_once)
        seen = comes(client, job, lambda seen: seen.attempt == 2 and all_run(seen))
        assert place.names() == [*again, "service/program-1-r1-master-service"]
        assert [move.diagnosis.category for move in seen.moves if move.HasField("diagnosis")] == [
            "pod_deleted"
        ]
        assert next(iter(client.logs(job, follow=True))).text == "up\n"
        assert "".join(piece.text for piece in client.logs(job, attempt=1)) == "up\n"
        client.cancel(job)
        assert client.wait(job, timeout=PATIENCE).attempt == 2
    assert place.names() == []


def test_the_deployed_rights_are_enough_to_keep_pods(service: Server, place: Place) -> None:
    with service.start("-s", "jobs.keep_failed_group=PT1H") as client:
        job = submit(client, {"EXIT_CODE": "3"}, instances=1)
        assert client.wait(job, timeout=PATIENCE).status == pb.failure
        assert place.names() == ["pod/program-1-master"]
    place.cluster.kubectl("delete", "pod", "-n", place.namespace, "program-1-master")


@pytest.mark.parametrize("seconds", [0.0, 0.1])
def test_a_service_killed_during_a_launch_continues_it(service: Server, place: Place, seconds: float) -> None:
    with service.start() as client:
        job = submit(client, FOREVER, instances=3)
    time.sleep(seconds)
    service.end(signal.SIGKILL)
    before = place.uids()
    with service.start() as client:
        seen = comes(client, job, all_run)
        after = place.uids()
        assert before.items() <= after.items()
        assert sorted(after) == [name.removeprefix("pod/") for name in GROUP]
        assert seen.attempt == 1
        client.cancel(job)
        assert client.wait(job, timeout=PATIENCE).status == pb.cancelled
    assert place.names() == []


def test_a_job_that_ends_during_downtime_keeps_its_result(service: Server, place: Place) -> None:
    with service.start() as client:
        job = submit(client, {"UNTIL_FILE": "/tmp/go", "PRINT": "bye", "EXIT_CODE": "3"})
        comes(client, job, all_run)
    service.end(signal.SIGKILL)
    in_pod = ("exec", "-n", place.namespace, "program-1-master", "--", "python3", "-c")
    place.cluster.kubectl(*in_pod, "open('/tmp/go', 'w')")  # the image has no other commands
    until = ["wait", "-n", place.namespace, "pod/program-1-master", f"--timeout={PATIENCE:g}s", "--for"]
    place.cluster.kubectl(*until, "condition=ContainersReady=false", timeout=PATIENCE + 10)
    with service.start() as client:
        ended = client.wait(job, timeout=PATIENCE)
        assert (ended.status, ended.diagnosis.category) == (pb.failure, "crashed")
        assert ended.ranks[0].exit_code == 3
        assert printed(client, job, 0) == "bye\n"
    assert place.names() == []


def test_a_queue_passes_through_a_small_capacity_and_leaves_nothing(service: Server, place: Place) -> None:
    with service.start() as client:
        jobs = [submit(client, {"PRINT": f"job {number}"}, instances=1 + number % 2) for number in range(12)]
        ended = [client.wait(job, timeout=PATIENCE) for job in jobs]
        assert [(each.status, each.attempt) for each in ended] == [(pb.succeed, 1)] * 12
        logs = [printed(client, job, 0) for job in jobs]
        assert logs == [f"job {number}\n" for number in range(12)]
    assert place.names() == []


def test_a_job_that_fits_nowhere_stays_launching_with_a_reason(service: Server, place: Place) -> None:
    options = pb.PodOptions(resources={"nvidia.com/gpu": "1000"})
    with service.start() as client:
        job = submit(client, {}, options=options)
        seen = comes(client, job, lambda status: any(rank.note for rank in status.ranks))
        assert seen.status == pb.launch
        assert "Insufficient nvidia.com/gpu" in seen.ranks[0].note
        assert "Insufficient nvidia.com/gpu" in seen.message
        other = submit(client, {})  # other jobs do not wait for it
        assert client.wait(other, timeout=PATIENCE).status == pb.succeed
        assert client.status(job).status == pb.launch
        client.cancel(job)
        assert client.wait(job, timeout=PATIENCE).status == pb.cancelled
    assert place.names() == []


def test_a_job_that_the_cluster_would_refuse_is_refused_at_admission(service: Server, place: Place) -> None:
    with service.start() as client:
        with pytest.raises(InvalidRequest, match="no PriorityClass with name no-such-class"):
            submit(client, {}, options=pb.PodOptions(priority_class="no-such-class"))
        assert list(client.list()) == []
    assert place.names() == []


def refused(folder: Path, kubeconfig: Path, namespace: str = "default") -> str:
    """Return the error line of a service that refuses to start."""
    file = folder / "config.toml"
    file.write_text(settings(kubeconfig, namespace))
    where = ["--config", str(file), "--data-dir", str(folder), "--address", "127.0.0.1:0"]
    return refusal("serve", *where, PYTHONPATH=os.environ.get("PYTHONPATH", ""))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "the file does not exist"),
        ("clusters: [", "not a kubeconfig"),
        ("", "not a kubeconfig"),
    ],
)
def test_an_invalid_kubeconfig_is_named(tmp_path: Path, content: str | None, problem: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    if content is not None:
        kubeconfig.write_text(content)
    line = refused(tmp_path, kubeconfig)
    assert line.startswith(f"kubernetes: {kubeconfig}: ")
    assert problem in line


@pytest.mark.parametrize(
    ("part", "changes", "problem"),
    [
        ("cluster", {"certificate-authority-data": None}, "certificate is not trusted"),
        ("cluster", {"certificate-authority-data": "aGVsbG8="}, "certificates cannot be loaded"),
        ("cluster", {"server": "10.0.0.1:6443"}, "'10.0.0.1:6443'; give it as https://HOST:PORT"),
        ("cluster", {"server": None}, "give it as https://HOST:PORT"),
        ("cluster", {"server": "http://{host}"}, "not a Kubernetes API server"),
        (
            "user",
            {"client-certificate-data": None, "client-key-data": None},
            "it has no credentials",
        ),
    ],
)
def test_a_kubeconfig_with_wrong_entries_is_named(
    place: Place, tmp_path: Path, part: str, changes: dict[str, str | None], problem: str
) -> None:
    flat = place.cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json")
    config = json.loads(flat)
    host = urlsplit(config["clusters"][0]["cluster"]["server"]).netloc
    changed = {**config[f"{part}s"][0][part], **changes}
    config[f"{part}s"][0][part] = {
        key: value.format(host=host) for key, value in changed.items() if value is not None
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    line = refused(tmp_path, tmp_path / "kubeconfig")
    assert line.startswith(f"kubernetes: {tmp_path / 'kubeconfig'}: ")
    assert problem in line


def test_secrets_of_an_invalid_kubeconfig_are_not_displayed(tmp_path: Path) -> None:
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    cluster = {"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}
    user = {"name": "a", "user": {"client-certificate-data": None, "token": "hunter2"}}
    config = {"current-context": "a", "contexts": [context], "clusters": [cluster], "users": [user]}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    line = refused(tmp_path, tmp_path / "kubeconfig")
    assert "client-certificate-data" in line
    assert "hunter2" not in line


def test_an_expired_token_is_named(place: Place, tmp_path: Path) -> None:
    place.cluster.apply(place.namespace, *accounts.account("gone", []))
    token = accounts.token(place.cluster, place.namespace, "gone")
    kubeconfig = accounts.kubeconfig(place.cluster, tmp_path / "kubeconfig", token)
    place.cluster.kubectl("delete", "serviceaccount", "gone", "-n", place.namespace)
    line = refused(tmp_path, kubeconfig, place.namespace)
    assert line.startswith(f"kubernetes: {kubeconfig}: ")
    assert "may have expired" in line


def test_missing_rights_are_named(place: Place, tmp_path: Path) -> None:
    place.cluster.apply(place.namespace, *accounts.account("nobody", []))
    token = accounts.token(place.cluster, place.namespace, "nobody")
    kubeconfig = accounts.kubeconfig(place.cluster, tmp_path / "kubeconfig", token)
    line = refused(tmp_path, kubeconfig, place.namespace)
    assert 'cannot list resource "pods"' in line
    assert place.namespace in line
