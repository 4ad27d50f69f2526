"""The same uploaded folder on processes, containers and pods: its output is the same."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import programs, tiny_wheel
from tests.support.cluster import PROGRAM_IMAGE, Cluster, address_for_pods
from tests.support.docker_engine import DockerEngine
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.server import Server
from tests.support.watching import printed
from training_service._generated import training_service_pb2 as pb
from training_service.client import InvalidRequest, TrainingClient

INSTANCE = "test-e2e-programs"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return programs.write(tmp_path / "user")


def run(client: TrainingClient, folder: Path, command: list[str], instances: int = 1) -> int:
    return client.run(command, folder=folder, instances=instances, environment=programs.ENVIRONMENT)


def check_output(client: TrainingClient, folder: Path) -> None:
    """Run the folder in two instances, and compare what they print."""
    job = run(client, folder, programs.COMMAND, instances=2)
    ended = client.wait(job, timeout=PATIENCE)
    assert ended.status == pb.succeed, ended
    for rank in range(2):
        assert programs.printed_by(printed(client, job, rank)) == programs.output(rank, 2)


def check_failures(client: TrainingClient, folder: Path) -> None:
    """Run a file that does not exist, and compare the advice."""
    job = run(client, folder, ["./trian.py"])
    ended = client.wait(job, timeout=PATIENCE)
    assert ended.status == pb.failure
    assert ended.diagnosis.category == "command_not_found", ended
    assert "Name a file of the uploaded folder" in ended.diagnosis.resolution


def check_requirements(client: TrainingClient, folder: Path) -> None:
    """Run the folder with its packages, and with packages that do not exist, at the same time."""
    tiny_wheel.write(folder / "wheels")
    where = "--no-index\n--find-links wheels\n"
    (folder / "requirements.txt").write_text(f"{where}tiny==1.0\n")
    (folder / "wrong.txt").write_text(f"{where}tiny==2.0\n")
    use = "import sys, tiny; print(tiny.version, sys.prefix != sys.base_prefix)"
    right = client.run(["python", "-c", use], folder=folder, instances=2, requirements="requirements.txt")
    wrong = client.run(["python", "-c", use], folder=folder, requirements="wrong.txt")
    ended = client.wait(right, timeout=PATIENCE)
    assert ended.status == pb.succeed, ended
    for rank in range(2):
        assert printed(client, right, rank).splitlines()[-1] == "1.0 True"
    ended = client.wait(wrong, timeout=PATIENCE)
    assert (ended.status, ended.diagnosis.category) == (pb.failure, "requirements_failed"), ended
    assert "tiny==2.0" in ended.diagnosis.detail, "uv says what does not resolve"


def check_images(client: TrainingClient, folder: Path, image: str) -> None:
    """Run a command in an environment of the operator and in an image of the request, at the same time."""
    command = ["python3", "-c", "print('begun')"]
    named = client.run(command, folder=folder, python_environment="team")
    own = client.run(command, folder=folder, image=image)
    for job in (named, own):
        ended = client.wait(job, timeout=PATIENCE)
        assert (ended.status, printed(client, job, 0)) == (pb.succeed, "begun\n"), ended
    assert client.artifacts(own).provenance.request.program.image == image
    with pytest.raises(InvalidRequest, match=r"program\.image: 'registry\.evil/.*program_image_patterns"):
        client.run(command, folder=folder, image=f"registry.evil/{image}")
    with pytest.raises(InvalidRequest, match=r"program\.python_environment: 'other' .*configured .*: team"):
        client.run(command, folder=folder, python_environment="other")


def test_a_folder_runs_in_processes(server: Server, folder: Path) -> None:
    with server.start() as client:
        check_output(client, folder)
        check_failures(client, folder)
        check_requirements(client, folder)


@pytest.fixture
def on_docker(docker_engine: DockerEngine, server: Server) -> Iterator[Server]:
    (server.folder / "config.toml").write_text(
        f"""
        backend = "docker"
        [docker]
        base_url = "{docker_engine.url}"
        instance = "{INSTANCE}"
        program_image = "{PROGRAM_IMAGE}"
        program_image_patterns = ["{PROGRAM_IMAGE.partition(":")[0]}:*"]
        program_environments = {{ team = "{PROGRAM_IMAGE}" }}
        network = "none"
        [jobs]
        stop_grace = 1
        """
    )
    yield server
    docker_engine.clear(INSTANCE)


def test_a_folder_runs_in_containers(on_docker: Server, folder: Path, docker_engine: DockerEngine) -> None:
    volumes = docker_engine.docker("volume", "ls", "-q")
    with on_docker.start() as client:
        check_output(client, folder)
        check_failures(client, folder)
        check_images(client, folder, PROGRAM_IMAGE)
        check_requirements(client, folder)
    [environments] = docker_engine.left(INSTANCE)
    assert environments.startswith("training-service-environments-")
    left = set(docker_engine.docker("volume", "ls", "-q").split()) - {environments}
    assert left == set(volumes.split()), "the files are gone with the containers"


@pytest.fixture
def on_cluster(cluster: Cluster, namespace: str, program_image: str, server: Server) -> Server:
    port = free_port()
    (server.folder / "config.toml").write_text(
        f"""
        backend = "kubernetes"
        [server]
        insecure = true
        [reports]
        listen = "0.0.0.0:{port}"
        address = "{address_for_pods(cluster)}:{port}"
        [programs]
        enabled = true
        [kubernetes]
        kubeconfig = {json.dumps(str(cluster.kubeconfig))}
        namespace = "{namespace}"
        program_image = "{program_image}"
        program_image_patterns = ["{program_image.rpartition(":")[0]}:*"]
        program_environments = {{ team = "{program_image}" }}
        [jobs]
        stop_grace = 1
        """
    )
    return server


def test_a_folder_runs_in_pods(on_cluster: Server, folder: Path, program_image: str) -> None:
    with on_cluster.start() as client:
        check_output(client, folder)
        check_failures(client, folder)
        check_images(client, folder, program_image)
        check_requirements(client, folder)


@pytest.fixture
def program_cache(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[str]:
    """Bind a claim to a folder of the node, as an operator does, and return its name."""
    kept = tmp_path / "kept"
    kept.mkdir()
    kept.chmod(0o777)
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "hostPath": {"path": str(kept), "type": "Directory"},
        "claimRef": {"namespace": namespace, "name": "program-cache"},
    }
    claim = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeName": namespace,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    one = {"apiVersion": "v1"}
    cluster.apply(
        namespace,
        {**one, "kind": "PersistentVolume", "metadata": {"name": namespace}, "spec": volume},
        {**one, "kind": "PersistentVolumeClaim", "metadata": {"name": "program-cache"}, "spec": claim},
    )
    yield "program-cache"
    cluster.kubectl("delete", "persistentvolume", namespace, "--wait=false")


def test_pods_with_a_cache_of_programs_fetch_contents_once(
    on_cluster: Server, folder: Path, program_image: str, program_cache: str
) -> None:
    cached = f"kubernetes.program_cache={program_cache}", f"kubernetes.fetch_image={program_image}"
    with on_cluster.start(*(word for each in cached for word in ("-s", each))) as client:
        check_output(client, folder)
        # From now on, a pod that asks the service for these contents is refused.
        for blob in server_blobs(on_cluster):
            blob.write_bytes(bytes(blob.stat().st_size))
        check_output(client, folder)


def test_a_pod_whose_files_cannot_be_fetched_says_why_and_what_to_do(
    on_cluster: Server, folder: Path
) -> None:
    with on_cluster.start("-s", "retry.max_attempts=1") as client:
        client.wait(run(client, folder, ["true"]), timeout=PATIENCE)
        (folder / "train.py").write_bytes(b"print(1)")
        other = run(client, folder, ["true"])  # uploads the changed file
        client.cancel(other)
        client.wait(other, timeout=PATIENCE)  # a pod that finds a damaged file removes it
        [blob] = [each for each in server_blobs(on_cluster) if each.read_bytes() == b"print(1)"]
        blob.write_bytes(b"print(2)")
        ended = client.wait(run(client, folder, ["true"]), timeout=PATIENCE)
    assert ended.status == pb.failure
    assert ended.diagnosis.category == "init_failed"
    assert "train.py was changed on the service's disk" in ended.diagnosis.detail
    assert "trainctl run uploads them" in ended.diagnosis.resolution


def server_blobs(server: Server) -> list[Path]:
    return list((server.data_dir / "programs/default/blobs").iterdir())
