"""Every framework trains for real in pods, through the service.

Pods run the software of this machine, which is also the node: the tests' image mounts it. Complete images,
as users have them, take minutes to build and to load; `python -m benchmarks.frameworks` trains in those.
"""

import json
import os
import socket
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.e2e.frameworks.cases import ALGORITHMS, CASES, Case, check, prepare_questions, train
from tests.support.cluster import Cluster
from tests.support.ports import free_port
from tests.support.watching import seen
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.server import Server
else:
    Server = Any

ROOT = Path(__file__).parents[3]
VENV = Path(sys.prefix)
PYTHON = Path(sys.base_prefix)
"""The Python that virtual environments are made from: they contain links to it."""

pytestmark = pytest.mark.cluster


@pytest.fixture
def service(cluster: Cluster, namespace: str, program_image: str, server: Server) -> Server:
    """The service on the cluster, not started yet. `server` ends all jobs afterwards."""
    if cluster.provider != "debian":
        pytest.skip(f"pods on {cluster.provider} cannot run the software of this machine")
    storage = server.folder / "storage"
    port = free_port()
    server.address = f"0.0.0.0:{port}"
    kubernetes = {"kubeconfig": str(cluster.kubeconfig), "namespace": namespace}
    settings = {
        "backend": "kubernetes",
        "server": {"insecure": True},
        "kubernetes": kubernetes,
        "reports": {"address": f"{_address_of_this_machine(cluster)}:{port}"},
        "algorithms": dict(_algorithms(program_image, storage)),
    }
    (server.folder / "config.toml").write_text("\n".join(_tables(settings)))
    return server


@pytest.fixture
def version(server: Server) -> str:
    made = prepare_questions(server.folder / "storage")
    for folder in ("models", "checkpoints"):
        (server.folder / "storage" / folder).mkdir()
        (server.folder / "storage" / folder).chmod(0o777)  # pods run as another user
    return made


def _address_of_this_machine(cluster: Cluster) -> str:
    """Return this machine's address as the cluster sees it: the source of calls to its API."""
    [server] = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"]
    api = urlsplit(server["cluster"]["server"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((api.hostname or "", api.port or 443))
        address: str = probe.getsockname()[0]
        return address


def _algorithms(image: str, storage: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return ALGORITHMS for pods: their process commands with mounts of this machine's software."""
    for name, algorithm in tomllib.loads(ALGORITHMS.read_text())["algorithms"].items():
        process = algorithm.pop("process")
        venv = ROOT / process.get("virtual_environment", VENV)
        places = dict.fromkeys(("/usr", str(PYTHON), str(ROOT / "trainer_images"), str(VENV)))
        mounts = {f"m{number}": {"path": path, "ro": True} for number, path in enumerate(places)}
        mounts["storage"] = {"path": str(storage), "ro": False}
        algorithm["environment"] = {
            "PATH": f"{venv}/bin{os.pathsep}{os.defpath}",
            "PYTHONPATH": str(ROOT / "trainer_images"),
            "OMP_NUM_THREADS": "1",
        }
        algorithm["kubernetes"] = {
            "image": image,
            "command": process["command"],
            "pod_template": {
                "spec": {
                    "volumes": [{"name": n, "hostPath": {"path": m["path"]}} for n, m in mounts.items()],
                    "containers": [
                        {
                            "name": "training",
                            "volumeMounts": [
                                {"name": n, "mountPath": m["path"], "readOnly": m["ro"]}
                                for n, m in mounts.items()
                            ],
                        }
                    ],
                }
            },
        }
        algorithm.pop("docker", None)
        yield name, algorithm


def _tables(settings: dict[str, Any]) -> Iterator[str]:
    """Convert the settings to TOML."""
    for name, value in settings.items():
        yield f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_framework_trains_in_pods(service: Server, version: str, case: Case) -> None:
    with service.start() as client:
        job = train(client, case, version)
        client.wait(job, timeout=240)
        check(client, case, job)


@pytest.mark.timeout(300)
def test_a_lost_worker_pod_is_replaced_within_the_attempt(
    service: Server, version: str, cluster: Cluster, namespace: str
) -> None:
    often = {"EPOCHS": "20", "CHECKPOINT_EVERY_STEPS": "20", "MIN_INSTANCES": "2"}
    case = Case("pytorch-elastic", 3, often)
    with service.start() as client:
        job = train(client, case, version)
        before = seen(client, job, step=1)
        name = f"pytorch-elastic-{job}-2-worker"
        cluster.kubectl("delete", "pod", "-n", namespace, name, "--grace-period=0", "--force")
        seen(client, job, step=before.progress.step, restarts=1)
        ended = client.wait(job, timeout=240)
        assert (ended.status, ended.attempt) == (pb.succeed, 1), ended
        check(client, case, job)
